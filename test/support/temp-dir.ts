import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";

/** A directory of its own for the running test, removed when it is over. */
export function tempDir(): string {
  const path = mkdtempSync(join(tmpdir(), "hf-"));
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}
