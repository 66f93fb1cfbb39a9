import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { endUnitsBelow, UNDER_UNITS } from "./machine/real-units.ts";

/** A directory of its own for the running test, removed when it is over. */
export function tempDir(): string {
  return madeIn(tmpdir());
}

/** The same in memory where there is such a file system: for very many files, or for what syncs them all the time. */
export function memoryDir(): string {
  return madeIn(existsSync("/dev/shm") && !UNDER_UNITS ? "/dev/shm" : tmpdir());
}

function madeIn(parent: string): string {
  const path = mkdtempSync(join(parent, "hf-"));
  onTestFinished(() => {
    endUnitsBelow(path);
    rmSync(path, { recursive: true, force: true });
  });
  return path;
}
