import { randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { chmod, lchown, lstat, mkdir, open, opendir, realpath, rename, rmdir, unlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { errnoOf, HostError, toError } from "../../errors.ts";

export type EntryKind = "directory" | "file" | "link" | "other";

/** File operations in directories that other users may write to. @throws {HostError} `directory-failed`, with the path in its message. */
export interface Directories {
  /** Returns the kind of the entry at a path without following links; undefined if there is none. */
  kind(path: string): Promise<EntryKind | undefined>;
  /** Returns the path with all links resolved; undefined if it leads to nothing. */
  realpath(path: string): Promise<string | undefined>;
  /**
   * Makes a directory below `root` and its parents with `mode`, ignoring the umask.
   * @throws {HostError} `unsafe-path` if a link or a file is on the path.
   */
  makeWithin(root: string, parts: readonly string[], mode: number): Promise<void>;
  /** Renames a file or directory to an unused path and syncs both parents. Returns false if there is nothing to rename. */
  move(from: string, to: string): Promise<boolean>;
  /**
   * Removes a tree without following links or leaving its file system. Returns false if it held more than `maxEntries` entries;
   * the next call continues.
   */
  removeTree(path: string, maxEntries: number, signal: AbortSignal): Promise<boolean>;
}

/** Maximum depth that paths can address: a path has at most 4096 bytes (PATH_MAX), a name up to 255. */
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
    throw failed("inspect", path, error);
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
      throw new HostError("unsafe-path", `${JSON.stringify(part)} is not a valid directory name`);
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
  if ((await kind(to)) !== undefined) throw new HostError("directory-failed", `${to} already exists`);
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
 * Renames an entry that another user may own. Changing a directory's parent needs write permission on the directory itself. The
 * agent may change owners but not write others' files, so it owns the directory for the duration of the rename.
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

/** Makes a directory writable for this process by taking ownership. */
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
    throw failed("inspect", path, error);
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

/** Empties a directory and removes it; returns false if entries are left for the next call. */
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
      // Entries too deep for a path, or with a name that is not text, move to the top first.
      await rename(child, join(removal.top, `.${randomBytes(8).toString("hex")}`));
      isEmpty = false;
    }
  }
  // A directory whose subdirectories were moved to the top is empty by now.
  if (isEmpty || depth >= MAX_DEPTH) await rmdir(path);
  return isEmpty;
}

// Names may be any bytes, and decoding could yield a different name; the types know only texts.
const AS_BYTES = { encoding: "buffer" as BufferEncoding };

/** Returns the path as text, or as bytes if the name is not text. */
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
