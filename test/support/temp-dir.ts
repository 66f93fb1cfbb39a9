import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { endUnitsBelow, UNDER_UNITS } from "./machine/real-units.ts";

const MEMORY = "/dev/shm";

/** Creates a directory, removed at the end of the running test, or by `onFinished`. */
export function tempDir(onFinished: (end: () => void) => void = onTestFinished): string {
  return madeIn(tmpdir(), onFinished);
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

function madeIn(parent: string, onFinished: (end: () => void) => void = onTestFinished): string {
  const path = mkdtempSync(join(parent, "hf-"));
  onFinished(() => {
    endUnitsBelow(path);
    rmSync(path, { recursive: true, force: true });
  });
  return path;
}
