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

/** A file name; bytes if it is not valid UTF-8, because decoding would change it. */
export type Name = string | Buffer;

/** Opens a file for lookup only, open(2); Node has no constant for it. */
const O_PATH = 0o10_000_000;
const { O_DIRECTORY, O_NOFOLLOW, O_RDONLY } = constants;
const LOOK = O_PATH | O_NOFOLLOW;
const DIRECTORY = LOOK | O_DIRECTORY;
/** Number of entries read from a directory at a time. */
const BATCH = 256;
// Decoding could change a name; the types know only texts.
const READING = { encoding: "buffer" as BufferEncoding, bufferSize: BATCH };

/** Returns a path to the file of an open descriptor, wherever it has moved. A call follows this one link, proc(5). */
export const via = (fd: number): string => `/proc/self/fd/${fd}`;

/** Returns a path to a name in an open directory. Used with calls that do not follow a final link, this is openat(2). */
export const at = (directory: number, name: Name): Name =>
  typeof name === "string"
    ? `/proc/self/fd/${directory}/${name}`
    : Buffer.concat([Buffer.from(`/proc/self/fd/${directory}/`), name]);

/** Opens a subdirectory for access to its entries; refuses a link. */
export const openDirectory = (directory: number, name: Name): number => openSync(at(directory, name), DIRECTORY);

/** Opens any entry for lookup; a link as a link. */
export const openEntry = (directory: number, name: Name): number => openSync(at(directory, name), LOOK);

/** Opens the directory of a descriptor for syncing, which needs read permission. */
export const openForSync = (directory: number): number => openSync(at(directory, "."), O_RDONLY | O_DIRECTORY);

/** Resolves once creations, renames and removals in a directory are on disk. */
export const syncDescriptor = promisify(fsync);

/** Closes a descriptor in the background, because the last descriptor of a large removed file blocks on the disk. */
export function closeSlowly(fd: number): void {
  close(fd, () => undefined);
}

/** Runs `work` with a descriptor and closes it afterwards. */
export async function holding<T>(fd: number, work: (fd: number) => Promise<T>): Promise<T> {
  try {
    return await work(fd);
  } finally {
    closeSync(fd);
  }
}

/**
 * Opens the directory at a path of names, one name at a time. The caller closes it.
 * @throws {InputError} `forbidden-path` if a link is on the path; errors of the system.
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

/** Like `descend`, but makes missing directories with mode 0700. Returns the number of names that existed. */
export function makeDirectories(
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

/** Makes one directory with mode 0700, ignoring the umask; returns false if the name exists. */
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
  /** The name as text for people, with U+FFFD for invalid bytes. */
  readonly text: string;
  readonly isDirectory: boolean;
}

/** Yields the entries of an open directory in batches, so that a million entries neither fill memory nor block others. */
export async function* entriesOf(directory: number): AsyncGenerator<readonly Found[]> {
  let batch: Found[] = [];
  // Node joins names to this path if the file system does not report their types, so the path is bytes.
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

/** Waits for all calls, because the caller then closes the descriptor in their paths. Returns their results or throws the first failure. */
export async function allEnded<T>(calls: readonly Promise<T>[]): Promise<readonly T[]> {
  const ended = await Promise.allSettled(calls);
  return ended.map((one) => {
    if (one.status === "rejected") throw one.reason;
    return one.value;
  });
}

/** Returns the mount number of an open file (proc_pid_fdinfo(5)). Bind mounts have their source's device number. */
export function mountOf(fd: number): string {
  const { dev } = fstatSync(fd);
  const [, mount = ""] = /^mnt_id:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${fd}`, "utf8")) ?? [];
  return `${dev} ${mount}`;
}

/** Returns device and inode, which identify a file for descriptors and paths alike. */
export function identityOf({ dev, ino }: { readonly dev: bigint; readonly ino: bigint }): string {
  return `${dev} ${ino}`;
}

/** Takes ownership of a directory so that its entries can be removed: an agent that may change owners may not write others' directories. */
export function claim(directory: number): void {
  const { uid, gid, mode } = fstatSync(directory);
  const self = process.geteuid?.() ?? 0;
  if (uid !== self) chownSync(via(directory), self, gid);
  if ((mode & 0o700) !== 0o700) chmodSync(via(directory), 0o700);
}

/** Changes a directory that another user may own, taking ownership for the duration of the change. */
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
    // Setting the mode of a directory with a foreign group would clear its set-group-ID bit, chmod(2).
    if ((mode & 0o700) !== 0o700) chmodSync(via(directory), mode & 0o7777);
    chownSync(via(directory), uid, gid);
  }
}

export const isDenied = (error: unknown): boolean => errnoOf(error) === "EACCES" || errnoOf(error) === "EPERM";

/** Reports whether an error means that the entry is missing or has changed its type. */
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
