import { existsSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

/** The bundle of a program of its own, beside the one with everything; undefined where there is none, as from source. */
function bundleOf(program: string): string | undefined {
  const [, entry = ""] = process.argv;
  const path = join(dirname(entry), `${program}.mjs`);
  if (basename(entry) !== "holdfast.mjs" || !existsSync(path)) return undefined;
  return statSync(path).size > 0 ? path : undefined;
}

/**
 * Becomes the program of that name from its own bundle: V8 keeps what it needed to read a text, and reading all of Holdfast takes an
 * overlay 16 MB more than reading its own part. Returns where there is no such bundle, or the runtime cannot.
 */
export function becomeOwnBundle(program: string): void {
  const path = bundleOf(program);
  if (path === undefined || process.execve === undefined) return;
  const args = [process.execPath, ...process.execArgv, path, ...process.argv.slice(2)];
  try {
    process.execve(process.execPath, args);
  } catch {
    // This bundle has the program, too; it only takes more memory.
  }
}

/** Loads the bundle of a program without running it; nothing where there is none. */
export async function loadOwnBundle(program: string): Promise<void> {
  const path = bundleOf(program);
  if (path !== undefined) await import(pathToFileURL(path).href);
}
