import { copyFile, lstat, mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { errnoOf } from "../../errors.ts";
import type { Clock } from "../clock.ts";

const ATTEMPTS = 10;
const PAUSE_MS = 200;

/**
 * Copies files and directories of plain files that another program may be writing. Repeats the copy until nothing changed during
 * it; returns false if that never happens. Skips names that do not exist.
 */
export async function copySettled(
  from: string,
  to: string,
  names: readonly string[],
  { clock, signal }: { readonly clock: Clock; readonly signal: AbortSignal },
): Promise<boolean> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    if (attempt > 0) await clock.sleep(PAUSE_MS, signal);
    await rm(to, { recursive: true, force: true });
    await mkdir(to, { recursive: true, mode: 0o700 });
    try {
      const before = await stampsOf(from, names);
      for (const path of Object.keys(before)) await copyOne(join(from, path), join(to, path));
      if (JSON.stringify(await stampsOf(from, names)) === JSON.stringify(before)) return true;
    } catch (error) {
      // The file disappeared after it was listed.
      if (errnoOf(error) !== "ENOENT") throw error;
    }
  }
  return false;
}

/** Returns a stamp for each path that changes whenever the file does. Directory paths end in a slash. */
async function stampsOf(root: string, names: readonly string[]): Promise<Readonly<Record<string, string>>> {
  const stamps: Record<string, string> = {};
  const visit = async (name: string): Promise<void> => {
    const stat = await lstat(join(root, name), { bigint: true }).catch(() => undefined);
    if (stat?.isDirectory() === true) {
      stamps[`${name}/`] = "";
      for (const inner of await readdir(join(root, name))) await visit(join(name, inner));
    } else if (stat?.isFile() === true) {
      stamps[name] = `${stat.ino} ${stat.size} ${stat.mtimeNs}`;
    }
  };
  for (const name of names) await visit(name);
  return stamps;
}

async function copyOne(from: string, to: string): Promise<void> {
  if (to.endsWith("/")) await mkdir(to, { recursive: true, mode: 0o700 });
  else await copyFile(from, to);
}
