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

/** Levels that are open at a time, two descriptors each. */
const MAX_LEVELS = 64;
/** Times that a directory is read again because something came into it. */
const MAX_AGAIN = 100;

interface Removal {
  readonly path: string;
  readonly signal: AbortSignal;
  readonly onRemoved: (entries: number) => void;
  /** The mount that is not left. */
  readonly mount: string;
  /** The uppermost directory that is removed. */
  readonly top: number;
  removed: number;
  /** Directories that were taken up to `top`, since they are too deep. */
  moved: number;
}

/**
 * Removes an entry of an open directory, with all that is in it; links as links. Of each directory only what its descriptor refers to is
 * touched, and no mount is entered. `onRemoved` is told how many entries are gone so far.
 * @throws {InputError} `in-use` for what is mounted; errors of the system; the signal's reason.
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

/** Whatever is mounted in it is found before anything is gone. */
function refuseMounts(top: number, path: string): void {
  const real = readlinkSync(via(top), "buffer");
  const inside = Buffer.concat([real, Buffer.from("/")]);
  const isMounted = readFileSync("/proc/self/mountinfo", "latin1")
    .split("\n")
    .map((line) => Buffer.from(unescaped(line.split(" ")[4] ?? ""), "latin1"))
    .some((point) => point.equals(real) || point.subarray(0, inside.length).equals(inside));
  if (isMounted) throw new InputError("in-use", `${shown(path)} cannot be removed: a file system is mounted there`);
}

/** Spaces and the like are octal in mountinfo, proc_pid_mountinfo(5). */
const unescaped = (text: string): string =>
  text.replaceAll(/\\([0-7]{3})/g, (_, octal: string) => String.fromCodePoint(Number.parseInt(octal, 8)));

/** Empties an open directory, and removes it from the one it is in. */
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
      // A pass that took directories up has work left by itself.
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
    // A directory that changes its parent has to be writable itself, rename(2).
    if (mountOf(fd) === run.mount) claim(fd);
    await rename(at(directory, name), at(run.top, `.holdfast-${randomBytes(12).toString("hex")}`));
    run.moved += 1;
  });
}

/** Undefined when it is none, or gone. */
function openIfDirectory(directory: number, name: Name): number | undefined {
  try {
    return openDirectory(directory, name);
  } catch (error) {
    if (isGone(error)) return undefined;
    throw error;
  }
}

/** False when it is a directory. What is gone already is as good as removed. */
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
