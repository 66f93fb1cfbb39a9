import { closeSync, constants, fchmodSync, fstatSync, ftruncateSync, lstatSync, openSync, unlinkSync } from "node:fs";
import { rename, unlink } from "node:fs/promises";
import { errnoOf, HostError, InputError } from "../../errors.ts";
import { partName } from "../../protocol/triggers/transfer.ts";
import {
  at,
  closeSlowly,
  descend,
  holding,
  identityOf,
  isGone,
  makeDirectories,
  openEntry,
  openForSync,
  syncDescriptor,
} from "./descriptors.ts";
import { storeFailure } from "./failures.ts";
import { openRegular } from "./open-file.ts";
import type { Place } from "./open-file.ts";
import { shown } from "./parse-path.ts";
import type { StorePart } from "./store.ts";

const { O_CREAT, O_EXCL, O_NOFOLLOW, O_RDWR } = constants;
const ID = /^[0-9A-Za-z-]{1,64}$/;

/**
 * Opens the part file of a task, keeping at most `keepBytes` bytes; makes its directory if missing.
 * @param refuseInUse Throws if the path may not be replaced.
 */
export function openPart(place: Place, id: string, keepBytes: number, refuseInUse: () => void): StorePart {
  const part = partOf(id);
  refuseInUse();
  const { directory, found } = makeDirectories(place.root(), place.parents);
  let home: number;
  try {
    refuseTarget(directory, place.name);
    // The directory is synced at the end; a directory that cannot be is reported before the transfer starts.
    home = openForSync(directory);
  } finally {
    closeSync(directory);
  }
  let fd: number | undefined;
  try {
    fd = openOrCreate(home, part);
    const { size, uid } = fstatSync(fd);
    if (uid !== process.geteuid?.()) throw new InputError("forbidden-path", `${part} belongs to another user`);
    fchmodSync(fd, 0o600);
    const bytes = Math.min(keepBytes, size);
    if (bytes !== size) ftruncateSync(fd, bytes);
    return opened({ place, part, home, fd, bytes, found, refuseInUse });
  } catch (error) {
    if (fd !== undefined) closeSync(fd);
    closeSync(home);
    throw error;
  }
}

interface OpenedPart {
  readonly place: Place;
  readonly part: string;
  /** Descriptor of the directory of both names. */
  readonly home: number;
  readonly fd: number;
  readonly bytes: number;
  /** Number of the directory's names that existed before. */
  readonly found: number;
  readonly refuseInUse: () => void;
}

function opened(options: OpenedPart): StorePart {
  const { place, part, home, fd, bytes } = options;
  let is: "open" | "publishing" | "closed" = "open";
  // A descriptor in use by a call is not closed, because its number would be reused.
  let afterwards: (() => void) | undefined;
  const close = (): void => {
    if (is !== "closed") for (const one of [fd, home]) closeSlowly(one);
    is = "closed";
  };
  const remove = (): void => {
    if (is === "closed") return;
    try {
      if (isStill(home, part, fd)) unlinkSync(at(home, part));
    } catch (error) {
      if (!isGone(error)) throw storeFailure(error, `remove ${part}`);
    } finally {
      close();
    }
  };
  const unlessPublishing = (act: () => void) => (): void => {
    if (is === "publishing") afterwards = act;
    else act();
  };
  return {
    fd,
    bytes,
    mark: async () => {
      try {
        await syncDescriptor(fd);
        return markOf(fd);
      } catch (error) {
        throw storeFailure(error, `sync ${part}`);
      }
    },
    publish: async () => {
      if (is !== "open") throw new HostError("storage-failed", `${part} is not open`);
      is = "publishing";
      try {
        await publish(options, () => {
          if (afterwards !== undefined) throw new HostError("storage-failed", `${part} was discarded`);
        });
        close();
      } catch (error) {
        is = "open";
        afterwards?.();
        throw storeFailure(error, `give ${shown([...place.parents, place.name].join("/"))} its content`);
      }
    },
    keep: unlessPublishing(close),
    discard: unlessPublishing(remove),
  };
}

async function publish({ place, part, home, fd, found, refuseInUse }: OpenedPart, goOn: () => void): Promise<void> {
  const { parents, name } = place;
  await syncDescriptor(fd);
  goOn();
  refuseInUse();
  const path = shown(parents.join("/"));
  if (!isStillAt(place, home))
    throw new InputError("not-found", `the directory ${path} was moved or removed during the transfer`);
  if (!isStill(home, part, fd))
    throw new InputError("not-found", `${part} in ${path} was moved or removed during the transfer`);
  refuseTarget(home, name);
  await rename(at(home, part), at(home, name));
  await syncDescriptor(home);
  // Sync the parents of directories that were created for it.
  for (let depth = found; depth < parents.length; depth += 1) {
    await syncDirectory(place.root(), parents.slice(0, depth));
  }
}

/**
 * Returns a mark that survives a rename and a reboot: inode and time do not change with the name. Device numbers may change at
 * boot, so they are not included.
 */
function markOf(fd: number): string {
  const { ino, size, mtimeNs } = fstatSync(fd, { bigint: true });
  return `${ino} ${size} ${mtimeNs}`;
}

/** Reports whether the file at a path is the part with this mark; also syncs its name to disk. */
export async function isPublished({ root, parents, name }: Place, mark: string): Promise<boolean> {
  try {
    return await holding(descend(root(), parents), async (parent) => {
      const isSame = await holding(
        openEntry(parent, name),
        async (fd) => fstatSync(fd).isFile() && markOf(fd) === mark,
      );
      if (isSame) await syncDirectory(root(), parents);
      return isSame;
    });
  } catch (error) {
    if (isGone(error)) return false;
    throw error;
  }
}

/** Syncs creations and removals in a directory to disk. */
export async function syncDirectory(root: number, names: readonly string[]): Promise<void> {
  const directory = descend(root, names);
  let fd: number;
  try {
    fd = openForSync(directory);
  } finally {
    closeSync(directory);
  }
  await holding(fd, (fd) => syncDescriptor(fd));
}

/** Reports whether a name still refers to an open file. */
function isStill(directory: number, name: string, fd: number): boolean {
  const there = lstatSync(at(directory, name), { bigint: true, throwIfNoEntry: false });
  return there !== undefined && identityOf(there) === identityOf(fstatSync(fd, { bigint: true }));
}

/** Reports whether a directory is still at the path where it was opened. */
function isStillAt({ root, parents }: Place, directory: number): boolean {
  try {
    const there = descend(root(), parents);
    try {
      return identityOf(fstatSync(there, { bigint: true })) === identityOf(fstatSync(directory, { bigint: true }));
    } finally {
      closeSync(there);
    }
  } catch (error) {
    if (isGone(error)) return false;
    throw error;
  }
}

/** Removes the part of a task, if it exists. */
export async function dropPart({ root, parents }: Place, id: string): Promise<void> {
  const part = partOf(id);
  try {
    await holding(descend(root(), parents), (parent) => unlink(at(parent, part)));
  } catch (error) {
    if (!isGone(error)) throw error;
  }
}

function partOf(id: string): string {
  if (ID.test(id)) return partName(id);
  throw new InputError("bad-path", `${shown(id)} is not a task id`);
}

function openOrCreate(directory: number, part: string): number {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return openRegular(directory, part, O_RDWR);
    } catch (error) {
      if (errnoOf(error) !== "ENOENT") throw error;
    }
    try {
      return openSync(at(directory, part), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
    } catch (error) {
      if (errnoOf(error) !== "EEXIST" || attempt >= 3) throw error;
    }
  }
}

/** Refuses to replace anything but a regular file. */
function refuseTarget(directory: number, name: string): void {
  const stat = lstatSync(at(directory, name), { throwIfNoEntry: false });
  if (stat === undefined || stat.isFile()) return;
  if (stat.isSymbolicLink()) throw new InputError("forbidden-path", `${shown(name)} is a link and cannot be replaced`);
  throw new InputError(
    "not-a-file",
    `${shown(name)} is ${stat.isDirectory() ? "a directory" : "not a regular file"}and cannot be replaced`,
  );
}
