import { randomBytes } from "node:crypto";
import { readFileSync, readlinkSync, rmdirSync, unlinkSync } from "node:fs";
import { rename, rmdir, unlink } from "node:fs/promises";
import { errnoOf, InputError } from "../../errors.ts";
import type { Name } from "./descriptors.ts";
import {
  allEnded,
  at,
  claim,
  entriesOf,
  holding,
  isDenied,
  isGone,
  mountOf,
  openDirectory,
  via,
  withClaim,
} from "./descriptors.ts";
import { shown } from "./parse-path.ts";

/** Number of levels open at a time, with two descriptors each. */
const MAX_LEVELS = 64;
/** Limit of rereading a directory that keeps getting new entries. */
const MAX_AGAIN = 100;

interface Removal {
  readonly path: string;
  readonly signal: AbortSignal;
  readonly onRemoved: (entries: number) => void;
  /** The mount that the removal stays on. */
  readonly mount: string;
  /** The topmost removed directory. */
  readonly top: number;
  removed: number;
  /** Number of directories moved to `top` because they were too deep. */
  moved: number;
}

/**
 * Removes an entry of an open directory with its content; links as links. Touches only files reached through descriptors, and
 * enters no mount. `onRemoved` receives the number of entries removed so far.
 * @throws {InputError} `in-use` for mounted file systems; errors of the system; the signal's reason.
 */
export async function removeEntry(
  directory: number,
  name: Name,
  { path, signal, onRemoved }: Pick<Removal, "path" | "signal" | "onRemoved">,
): Promise<void> {
  signal.throwIfAborted();
  const top = openIfDirectory(directory, name);
  if (top === undefined) {
    await unlinkFrom(directory, name);
    onRemoved(1);
    return;
  }
  await holding(top, async () => {
    refuseMounts(top, path);
    const run: Removal = { path, signal, onRemoved, mount: mountOf(directory), top, removed: 0, moved: 0 };
    await clear(directory, name, top, run, 0);
  });
}

/** Refuses mounts below the directory before anything is removed. */
function refuseMounts(top: number, path: string): void {
  const real = readlinkSync(via(top), "buffer");
  const inside = Buffer.concat([real, Buffer.from("/")]);
  const isMounted = readFileSync("/proc/self/mountinfo", "latin1")
    .split("\n")
    .map((line) => Buffer.from(unescaped(line.split(" ")[4] ?? ""), "latin1"))
    .some((point) => point.equals(real) || point.subarray(0, inside.length).equals(inside));
  if (isMounted) throw new InputError("in-use", `${shown(path)} cannot be removed: a file system is mounted there`);
}

/** Decodes the octal escapes of spaces and the like in mountinfo, proc_pid_mountinfo(5). */
export const unescaped = (text: string): string =>
  text.replaceAll(/\\([0-7]{3})/g, (_, octal: string) => String.fromCodePoint(Number.parseInt(octal, 8)));

/** Empties an open directory and removes it from its parent. */
async function clear(directory: number, name: Name, fd: number, run: Removal, level: number): Promise<void> {
  if (mountOf(fd) !== run.mount) {
    throw new InputError("in-use", `${shown(run.path)} cannot be removed: a file system is mounted in it`);
  }
  claim(fd);
  for (let again = 0; ; again += 1) {
    const moved = run.moved;
    await empty(fd, run, level);
    try {
      await dropDirectory(directory, name);
      return count(run, 1);
    } catch (error) {
      if (isGone(error)) return;
      // A pass that moved directories to the top leaves work by design.
      if (run.moved !== moved) again = 0;
      if (errnoOf(error) !== "ENOTEMPTY" || again >= MAX_AGAIN) throw error;
    }
  }
}

async function empty(fd: number, run: Removal, level: number): Promise<void> {
  for await (const batch of entriesOf(fd)) {
    run.signal.throwIfAborted();
    const rest = batch.filter(({ isDirectory }) => isDirectory).map(({ name }) => name);
    const files = batch.filter(({ isDirectory }) => !isDirectory);
    const dropped = await allEnded(
      files.map(async ({ name }) => {
        if (await dropFile(fd, name)) return true;
        rest.push(name);
        return false;
      }),
    );
    count(run, dropped.filter(Boolean).length);
    for (const name of rest) await clearEntry(fd, name, run, level + 1);
  }
}

async function clearEntry(directory: number, name: Name, run: Removal, level: number): Promise<void> {
  run.signal.throwIfAborted();
  const fd = openIfDirectory(directory, name);
  if (fd === undefined) {
    if (await dropFile(directory, name)) count(run, 1);
    return;
  }
  await holding(fd, async () => {
    if (level < MAX_LEVELS) return clear(directory, name, fd, run, level);
    // A directory must be writable to change its parent, rename(2).
    if (mountOf(fd) === run.mount) claim(fd);
    await rename(at(directory, name), at(run.top, `.holdfast-${randomBytes(12).toString("hex")}`));
    run.moved += 1;
  });
}

/** Opens an entry if it is a directory; returns undefined otherwise or if it is missing. */
function openIfDirectory(directory: number, name: Name): number | undefined {
  try {
    return openDirectory(directory, name);
  } catch (error) {
    if (isGone(error)) return undefined;
    throw error;
  }
}

/** Removes an entry that is not a directory; returns false for a directory. A missing entry counts as removed. */
async function dropFile(directory: number, name: Name): Promise<boolean> {
  try {
    await unlinkFrom(directory, name);
    return true;
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return true;
    if (errnoOf(error) === "EISDIR") return false;
    throw error;
  }
}

async function unlinkFrom(directory: number, name: Name): Promise<void> {
  await unlink(at(directory, name)).catch((error: unknown) => {
    if (!isDenied(error)) throw error;
    withClaim(directory, () => unlinkSync(at(directory, name)));
  });
}

async function dropDirectory(directory: number, name: Name): Promise<void> {
  await rmdir(at(directory, name)).catch((error: unknown) => {
    if (!isDenied(error)) throw error;
    withClaim(directory, () => rmdirSync(at(directory, name)));
  });
}

function count(run: Removal, entries: number): void {
  if (entries === 0) return;
  run.removed += entries;
  run.onRemoved(run.removed);
}
