import type { Stats } from "node:fs";
import { lstat, unlink } from "node:fs/promises";
import { partName } from "../../protocol/triggers/transfer.ts";
import type { Found } from "./descriptors.ts";
import { allEnded, at, entriesOf, holding, isDenied, isGone, mountOf, openDirectory } from "./descriptors.ts";

/** Maximum depth of a walk, with two descriptors per level. */
const MAX_LEVELS = 128;
const BLOCK = 512; // of st_blocks, inode(7)

export interface WalkOptions {
  readonly signal: AbortSignal;
  /** Pauses between two steps, to use little of a small machine's processor time. */
  readonly pause: () => Promise<void>;
}

/** Returns the disk space of everything in an open directory, in bytes. Shares the size of a file with several names among those found. */
export async function bytesOnDisk(directory: number, options: WalkOptions): Promise<number> {
  let bytes = 0;
  await walk(directory, options, async (fd, entries) => {
    const stats = await allEnded(entries.map(({ name }) => ifThere(lstat(at(fd, name)))));
    for (const stat of stats) if (stat !== undefined) bytes += (stat.blocks * BLOCK) / shares(stat);
  });
  return Math.round(bytes);
}

/** Removes the part files of all tasks except these and returns their number. Ids added during the walk count too. */
export async function sweep(directory: number, known: ReadonlySet<string>, options: WalkOptions): Promise<number> {
  let swept = 0;
  await walk(directory, options, async (fd, entries) => {
    const left = entries.filter(({ text, isDirectory }) => {
      const [, id] = PART.exec(text) ?? [];
      return !isDirectory && id !== undefined && !known.has(id);
    });
    const gone = await allEnded(left.map(({ name }) => ifThere(unlink(at(fd, name)).then(() => true))));
    swept += gone.filter(Boolean).length;
  });
  return swept;
}

const PART = new RegExp(`^${partName("([0-9A-Za-z-]+)").replaceAll(".", String.raw`\.`)}$`);

/** A directory has a link for each subdirectory, so its link count is ignored. */
const shares = (stat: Stats): number => (stat.isDirectory() ? 1 : Math.max(1, stat.nlink));

type Visit = (directory: number, entries: readonly Found[]) => Promise<void>;

/** Visits all entries of a tree on one file system in steps; skips unreadable ones. */
async function walk(directory: number, options: WalkOptions, visit: Visit): Promise<void> {
  await into(directory, mountOf(directory), options, visit, 0);
}

async function into(fd: number, mount: string, options: WalkOptions, visit: Visit, level: number): Promise<void> {
  for await (const batch of entriesOf(fd)) {
    options.signal.throwIfAborted();
    await visit(fd, batch);
    await options.pause();
    if (level >= MAX_LEVELS) continue;
    for (const { name, isDirectory } of batch) {
      options.signal.throwIfAborted();
      if (isDirectory) await enter(fd, name, mount, options, visit, level);
    }
  }
}

async function enter(
  directory: number,
  name: Found["name"],
  mount: string,
  options: WalkOptions,
  visit: Visit,
  level: number,
): Promise<void> {
  try {
    await holding(openDirectory(directory, name), async (fd) => {
      if (mountOf(fd) === mount) await into(fd, mount, options, visit, level + 1);
    });
  } catch (error) {
    if (!isGone(error) && !isDenied(error)) throw error;
  }
}

async function ifThere<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (isGone(error) || isDenied(error)) return undefined;
    throw error;
  }
}
