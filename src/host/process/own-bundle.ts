import { existsSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

/** The program's own bundle, beside the one with everything; undefined if there is none, as when run from source. */
function bundleOf(program: string): string | undefined {
  const [, entry = ""] = process.argv;
  const path = join(dirname(entry), `${program}.mjs`);
  if (basename(entry) !== "holdfast.mjs" || !existsSync(path)) return undefined;
  return statSync(path).size > 0 ? path : undefined;
}

/**
 * Replaces this process by the program's own bundle: V8 keeps the memory that it needed to parse a source, and parsing all of Holdfast
 * takes an overlay 16 MB more than parsing its own part. Returns if there is no such bundle, or the runtime has no execve.
 */
export function becomeOwnBundle(program: string): void {
  const path = bundleOf(program);
  if (path === undefined || process.execve === undefined) return;
  const args = [process.execPath, ...process.execArgv, path, ...process.argv.slice(2)];
  try {
    process.execve(process.execPath, args);
  } catch {
    // This bundle has the program too; it only takes more memory.
  }
}

/** Loads the bundle of a program without running it; does nothing if there is none. */
export async function loadOwnBundle(program: string): Promise<void> {
  const path = bundleOf(program);
  if (path !== undefined) await import(pathToFileURL(path).href);
}
