import { existsSync, mkdirSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { waitFor } from "./wait-for.ts";

/**
 * Returns the directory of that name that all files of a run share and none changes, below the run's own. Whichever worker comes first
 * makes it; the others wait for it, and the next one tries again if that failed.
 */
export async function onceInRun(name: string, make: (dir: string) => Promise<void>): Promise<string> {
  const dir = join(tmpdir(), name);
  const part = `${dir}.part`;
  while (!existsSync(dir)) {
    if (!begins(part)) {
      await waitFor(`${name} is made`, () => existsSync(dir) || !existsSync(part), 600_000);
      continue;
    }
    try {
      await make(part);
      renameSync(part, dir);
    } finally {
      rmSync(part, { recursive: true, force: true });
    }
  }
  return dir;
}

/** Whether the directory was not there. */
function begins(part: string): boolean {
  try {
    mkdirSync(part);
    return true;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "EEXIST") return false;
    throw error;
  }
}
