import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { endUnitsBelow, UNDER_UNITS } from "./machine/real-units.ts";

const MEMORY = "/dev/shm";

/** Creates a directory for the running test, removed at its end. */
export function tempDir(): string {
  return madeIn(tmpdir());
}

/** Creates one in memory if such a file system exists: for very many files, or for frequent syncs. */
export function memoryDir(): string {
  const isInMemory = tmpdir().startsWith(`${MEMORY}/`) || UNDER_UNITS || !existsSync(MEMORY);
  return madeIn(isInMemory ? tmpdir() : MEMORY);
}

/** Creates one outside /dev, where the other temporary files may be: for code that refuses the directories of the kernel. */
export function dirOutsideDev(): string {
  return madeIn("/var/tmp");
}

function madeIn(parent: string): string {
  const path = mkdtempSync(join(parent, "hf-"));
  onTestFinished(() => {
    endUnitsBelow(path);
    rmSync(path, { recursive: true, force: true });
  });
  return path;
}
