import { isUtf8 } from "node:buffer";
import {
  chmodSync,
  chownSync,
  close,
  closeSync,
  constants,
  fstatSync,
  fsync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
} from "node:fs";
import { opendir } from "node:fs/promises";
import { promisify } from "node:util";
import { errnoOf, InputError } from "../../errors.ts";
import { shown } from "./parse-path.ts";

/** A name as bytes where it is no UTF-8: decoded it would be that of something else, or of nothing. */
export type Name = string | Buffer;

/** Finds a file and opens nothing of it, open(2); Node has no constant for it. */
const O_PATH = 0o10_000_000;
const { O_DIRECTORY, O_NOFOLLOW, O_RDONLY } = constants;
const LOOK = O_PATH | O_NOFOLLOW;
const DIRECTORY = LOOK | O_DIRECTORY;
/** Entries that are read from a directory at a time. */
const BATCH = 256;
// The types know only texts, and a decoded name may be that of nothing.
const READING = { encoding: "buffer" as BufferEncoding, bufferSize: BATCH };

/** What an open descriptor refers to, wherever that is now; the call that is given it follows this one link, proc(5). */
export const via = (fd: number): string => `/proc/self/fd/${fd}`;

/** A name in an open directory: with calls that follow no last link this is openat(2). */
export const at = (directory: number, name: Name): Name =>
  typeof name === "string"
    ? `/proc/self/fd/${directory}/${name}`
    : Buffer.concat([Buffer.from(`/proc/self/fd/${directory}/`), name]);

/** Opens a directory of a directory for what is below it; a link is none. */
export const openDirectory = (directory: number, name: Name): number => openSync(at(directory, name), DIRECTORY);

/** Opens whatever is there for looking at it; a link as a link. */
export const openEntry = (directory: number, name: Name): number => openSync(at(directory, name), LOOK);

/** Opens the directory of a descriptor for syncing it, which needs the right to read it. */
export const openForSync = (directory: number): number => openSync(at(directory, "."), O_RDONLY | O_DIRECTORY);

/** Waits until what was made, renamed or removed in a directory is on the disk. */
export const syncDescriptor = promisify(fsync);

/** Closes one in the background: the last descriptor of a large removed file takes the disk a while. */
export function closeSlowly(fd: number): void {
  close(fd, () => undefined);
}

/** Gives a descriptor to some work, and closes it when that has ended. */
export async function holding<T>(fd: number, work: (fd: number) => Promise<T>): Promise<T> {
  try {
    return await work(fd);
  } finally {
    closeSync(fd);
  }
}

/**
 * Opens the directory that names lead to from a directory, name by name. The caller closes it.
 * @throws {InputError} `forbidden-path` when a link is on the way; errors of the system.
 */
export function descend(from: number, names: readonly Name[]): number {
  let here: number | undefined;
  for (const [index, name] of names.entries()) {
    let next: number;
    try {
      next = openDirectory(here ?? from, name);
    } catch (error) {
      const refused = errnoOf(error) === "ENOTDIR" ? judge(here ?? from, names.slice(0, index + 1), error) : error;
      if (here !== undefined) closeSync(here);
      throw refused;
    }
    if (here !== undefined) closeSync(here);
    here = next;
  }
  return here ?? openDirectory(from, ".");
}

/** The same; directories that are missing are made with mode 0700. Tells how many of the names were there. */
export function makeWay(
  from: number,
  names: readonly string[],
): { readonly directory: number; readonly found: number } {
  let here = descend(from, []);
  let found = names.length;
  for (const [index, name] of names.entries()) {
    try {
      if (makeDirectory(here, name)) found = Math.min(found, index);
      const next = descend(here, [name]);
      closeSync(here);
      here = next;
    } catch (error) {
      closeSync(here);
      throw error;
    }
  }
  return { directory: here, found };
}

/** Makes one directory with mode 0700, whatever the umask says; false when something is there. */
export function makeDirectory(directory: number, name: string): boolean {
  if (lstatSync(at(directory, name), { throwIfNoEntry: false }) !== undefined) return false;
  try {
    mkdirSync(at(directory, name), 0o700);
  } catch (error) {
    if (errnoOf(error) === "EEXIST") return false;
    throw error;
  }
  const made = openDirectory(directory, name);
  try {
    if ((fstatSync(made).mode & 0o777) !== 0o700) chmodSync(via(made), 0o700);
  } finally {
    closeSync(made);
  }
  return true;
}

export interface Found {
  readonly name: Name;
  /** For people: as text, with U+FFFD for what is none. */
  readonly text: string;
  readonly isDirectory: boolean;
}

/** The entries of an open directory in pieces, so that one of a million takes neither memory nor the time of others. */
export async function* entriesOf(directory: number): AsyncGenerator<readonly Found[]> {
  let batch: Found[] = [];
  // A path of bytes, since that is what Node joins names to where the file system does not tell their kinds.
  for await (const entry of await opendir(Buffer.from(via(directory)), READING)) {
    const bytes = Buffer.from(entry.name);
    const text = bytes.toString();
    batch.push({ name: isUtf8(bytes) ? text : bytes, text, isDirectory: entry.isDirectory() });
    if (batch.length < BATCH) continue;
    yield batch;
    batch = [];
  }
  if (batch.length > 0) yield batch;
}

/** All results once the last call has ended, since the descriptor in their paths is closed then; the first failure is thrown. */
export async function allEnded<T>(calls: readonly Promise<T>[]): Promise<readonly T[]> {
  const ended = await Promise.allSettled(calls);
  return ended.map((one) => {
    if (one.status === "rejected") throw one.reason;
    return one.value;
  });
}

/** Number of the mount that something open is on, proc_pid_fdinfo(5): bind mounts have the device of where they are from. */
export function mountOf(fd: number): string {
  const { dev } = fstatSync(fd);
  const [, mount = ""] = /^mnt_id:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "utf8")) ?? [];
  return `${dev} ${mount}`;
}

/** Device and inode: what a descriptor refers to, and a path does. */
export function identityOf({ dev, ino }: { readonly dev: bigint; readonly ino: bigint }): string {
  return `${dev} ${ino}`;
}

/** Makes a directory ours, so that what is in it can be removed: an agent that may only give files away cannot write those of others. */
export function claim(directory: number): void {
  const { uid, gid, mode } = fstatSync(directory);
  const self = process.geteuid?.() ?? 0;
  if (uid !== self) chownSync(via(directory), self, gid);
  if ((mode & 0o700) !== 0o700) chmodSync(via(directory), 0o700);
}

/** Changes a directory that may be somebody else's: for the moment of it the directory is ours. */
export function withClaim<T>(directory: number, change: () => T): T {
  try {
    return change();
  } catch (error) {
    if (!isDenied(error) || fstatSync(directory).uid === process.geteuid?.()) throw error;
  }
  const { uid, gid, mode } = fstatSync(directory);
  claim(directory);
  try {
    return change();
  } finally {
    // Setting the mode of a directory of a strange group would take its set-group-ID bit, chmod(2).
    if ((mode & 0o700) !== 0o700) chmodSync(via(directory), mode & 0o7777);
    chownSync(via(directory), uid, gid);
  }
}

export const isDenied = (error: unknown): boolean => errnoOf(error) === "EACCES" || errnoOf(error) === "EPERM";

/** Nothing of that name is there, or not what it was. */
export const isGone = (error: unknown): boolean =>
  ["ENOENT", "ENOTDIR", "ELOOP"].includes(errnoOf(error) ?? "") ||
  (error instanceof InputError && ["forbidden-path", "not-a-directory"].includes(error.code));

function judge(directory: number, names: readonly Name[], error: unknown): unknown {
  const name = names.at(-1) ?? ".";
  const path = shown(names.join("/"));
  const stat = lstatSync(at(directory, name), { throwIfNoEntry: false });
  return stat?.isSymbolicLink() === true
    ? new InputError("forbidden-path", `${path} is a link, and links are not followed`)
    : new InputError("not-a-directory", `${path} is not a directory`, { cause: error });
}
