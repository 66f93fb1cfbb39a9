import { randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { chmod, lchown, lstat, mkdir, open, opendir, realpath, rename, rmdir, unlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { errnoOf, HostError, toError } from "../../errors.ts";

export type EntryKind = "directory" | "file" | "link" | "other";

/** Directories whose contents strangers write. @throws {HostError} `directory-failed`, with the path in its message. */
export interface Directories {
  /** What is at a path itself, links not followed; undefined when nothing is. */
  kind(path: string): Promise<EntryKind | undefined>;
  /** Where a path really leads; undefined when to nothing. */
  realpath(path: string): Promise<string | undefined>;
  /**
   * Makes a directory below `root`, and those on the way to it, whatever the umask says.
   * @throws {HostError} `unsafe-path` when a link or a file is on the way.
   */
  makeWithin(root: string, parts: readonly string[], mode: number): Promise<void>;
  /** Renames a file or directory to where nothing is, and makes it durable in both places. False when there is nothing to rename. */
  move(from: string, to: string): Promise<boolean>;
  /**
   * Removes a tree, links as links, and stays on its file system. True when nothing is left of it; false when there was more in it than
   * `maxEntries`, and the next call goes on.
   */
  removeTree(path: string, maxEntries: number, signal: AbortSignal): Promise<boolean>;
}

/** A path may be no longer than 4096 bytes (PATH_MAX), and names are up to 255 long. */
const MAX_DEPTH = 12;

export function hostDirectories(): Directories {
  return { kind, realpath: resolved, makeWithin, move, removeTree };
}

async function kind(path: string): Promise<EntryKind | undefined> {
  try {
    const stat = await lstat(path);
    if (stat.isDirectory()) return "directory";
    if (stat.isFile()) return "file";
    return stat.isSymbolicLink() ? "link" : "other";
  } catch (error) {
    if (isAbsent(error)) return undefined;
    throw failed("look at", path, error);
  }
}

async function resolved(path: string): Promise<string | undefined> {
  try {
    return await realpath(path);
  } catch (error) {
    if (isAbsent(error)) return undefined;
    throw failed("resolve", path, error);
  }
}

async function makeWithin(root: string, parts: readonly string[], mode: number): Promise<void> {
  let path = root;
  for (const part of parts) {
    if (part === "" || part === "." || part === ".." || part.includes("/") || part.includes("\0")) {
      throw new HostError("unsafe-path", `${JSON.stringify(part)} is no name of a directory`);
    }
    const parent = path;
    path = join(parent, part);
    const found = await kind(path);
    if (found === "directory") continue;
    if (found !== undefined) throw new HostError("unsafe-path", `${path} is not a directory`, { details: { path } });
    try {
      await mkdir(path);
      await chmod(path, mode);
      await sync(parent);
    } catch (error) {
      throw failed("create", path, error);
    }
  }
}

async function move(from: string, to: string): Promise<boolean> {
  if ((await kind(from)) === undefined) return false;
  if ((await kind(to)) !== undefined) throw new HostError("directory-failed", `${to} is there already`);
  try {
    await renameOwned(from, to);
    await sync(dirname(to));
    await sync(dirname(from));
    return true;
  } catch (error) {
    throw failed("rename", from, error);
  }
}

/**
 * A directory whose parent changes has to be writable itself, and the agent may give files away, not write those of others: for the
 * moment of it the directory is ours.
 */
async function renameOwned(from: string, to: string): Promise<void> {
  try {
    return await rename(from, to);
  } catch (error) {
    if (!isDenied(error)) throw error;
  }
  const { uid, gid, mode } = await lstat(from);
  const giveBack = async (path: string): Promise<void> => {
    await chmod(path, mode & 0o7777);
    await lchown(path, uid, gid);
  };
  await claim(from, { uid, mode });
  try {
    await rename(from, to);
  } catch (error) {
    await giveBack(from);
    throw error;
  }
  await giveBack(to);
}

/** Makes a directory ours, to do with it as we like. */
async function claim(
  path: string | Buffer,
  { uid, mode }: { readonly uid: number; readonly mode: number },
): Promise<void> {
  const self = process.geteuid?.() ?? 0;
  if (uid !== self) await lchown(path, self, process.getegid?.() ?? 0);
  if (uid !== self || (mode & 0o700) !== 0o700) await chmod(path, 0o700);
}

async function removeTree(path: string, maxEntries: number, signal: AbortSignal): Promise<boolean> {
  const top = await lstat(path).catch((error: unknown) => {
    if (isAbsent(error)) return undefined;
    throw failed("look at", path, error);
  });
  if (top === undefined) return true;
  const budget = { left: maxEntries };
  try {
    if (!top.isDirectory()) return await dropFile(path);
    await claim(path, top);
    return await empty(path, { top: path, device: top.dev, budget, signal }, 0);
  } catch (error) {
    signal.throwIfAborted();
    throw error instanceof HostError ? error : failed("remove", path, error);
  }
}

interface Removal {
  readonly top: string;
  readonly device: number;
  readonly budget: { left: number };
  readonly signal: AbortSignal;
}

/** Removes what is in a directory and then itself; false when something is left for the next time. */
async function empty(path: string, removal: Removal, depth: number): Promise<boolean> {
  let isEmpty = true;
  for await (const entry of await opendir(path, AS_BYTES)) {
    removal.signal.throwIfAborted();
    if (removal.budget.left <= 0) return false;
    removal.budget.left -= 1;
    const child = childOf(path, Buffer.from(entry.name));
    if (!entry.isDirectory()) {
      await dropFile(child);
      continue;
    }
    const stat = await lstat(child);
    if (stat.dev !== removal.device) throw new HostError("directory-failed", `${child.toString()} is mounted`);
    await claim(child, stat);
    if (depth < MAX_DEPTH && typeof child === "string") {
      isEmpty = (await empty(child, removal, depth + 1)) && isEmpty;
    } else {
      // What is too deep for a path to reach, or has a name that is no text, is taken up first.
      await rename(child, join(removal.top, `.${randomBytes(8).toString("hex")}`));
      isEmpty = false;
    }
  }
  // Of one whose subdirectories were taken up nothing is left but itself.
  if (isEmpty || depth >= MAX_DEPTH) await rmdir(path);
  return isEmpty;
}

// The types know only texts; names may be any bytes, and a decoded one would be that of nothing.
const AS_BYTES = { encoding: "buffer" as BufferEncoding };

/** As text where it is one. */
function childOf(path: string, name: Buffer): string | Buffer {
  const text = join(path, name.toString());
  return name.equals(Buffer.from(name.toString())) ? text : Buffer.concat([Buffer.from(`${path}/`), name]);
}

async function dropFile(path: string | Buffer): Promise<true> {
  await unlink(path).catch((error: unknown) => {
    if (!isAbsent(error)) throw error;
  });
  return true;
}

async function sync(path: string): Promise<void> {
  const directory = await open(path, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

function isAbsent(error: unknown): boolean {
  return errnoOf(error) === "ENOENT" || errnoOf(error) === "ENOTDIR";
}

function isDenied(error: unknown): boolean {
  return errnoOf(error) === "EACCES" || errnoOf(error) === "EPERM";
}

function failed(verb: string, path: string, cause: unknown): HostError {
  return new HostError("directory-failed", `cannot ${verb} ${path}: ${toError(cause).message}`, {
    cause,
    details: { path },
  });
}
