import { closeSync, existsSync, fstatSync, openSync, readSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

/** Bytes read from the end of a bundle; its last line is shorter. */
const TAIL_BYTES = 256;

interface OwnBundle {
  readonly path: string;
  /** Whether the last line is the one that the build wrote. */
  readonly isWhole: boolean;
}

/** Returns the program's own bundle beside the full one; undefined if there is none, as when run from source. */
function bundleOf(program: string): OwnBundle | undefined {
  const [, entry = ""] = process.argv;
  const path = join(dirname(entry), `${program}.mjs`);
  if (basename(entry) !== "holdfast.mjs" || !existsSync(path)) return undefined;
  return { path, isWhole: tailOf(path).trimEnd().endsWith(`//# sourceMappingURL=${program}.mjs.map`) };
}

function tailOf(path: string): string {
  const file = openSync(path, "r");
  try {
    const { size } = fstatSync(file);
    const tail = Buffer.alloc(Math.min(size, TAIL_BYTES));
    readSync(file, tail, 0, tail.length, size - tail.length);
    return tail.toString("latin1");
  } finally {
    closeSync(file);
  }
}

const truncated = (path: string): string => `${path} is truncated`;

/**
 * Replaces this process by the program's own bundle, because V8 keeps the memory that parsing needed: parsing all of Holdfast
 * takes an overlay 16 MB more than parsing its own part. Returns if there is no such bundle, if it is truncated (which is
 * reported), or if the runtime has no execve.
 */
export function becomeOwnBundle(program: string): void {
  try {
    const bundle = bundleOf(program);
    if (bundle === undefined || process.execve === undefined) return;
    if (!bundle.isWhole) {
      const effect = `${program} runs from holdfast.mjs and takes more memory`;
      process.stderr.write(`${truncated(bundle.path)}: ${effect}; install this version again\n`);
      return;
    }
    process.execve(process.execPath, [process.execPath, ...process.execArgv, bundle.path, ...process.argv.slice(2)]);
  } catch {
    // This bundle contains the program too; it only takes more memory.
  }
}

/** Loads the bundle of a program without running it; does nothing if there is none. @throws if it is truncated or cannot be loaded. */
export async function loadOwnBundle(program: string): Promise<void> {
  const bundle = bundleOf(program);
  if (bundle === undefined) return;
  if (!bundle.isWhole) throw new Error(truncated(bundle.path));
  await import(pathToFileURL(bundle.path).href);
}
