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
  makeWay,
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
 * Opens the part of a task, its directory made when missing, with the bytes that are to be kept of it.
 * @param inUse Throws when the place may not get another file.
 */
export function openPart(place: Place, id: string, keepBytes: number, refuseInUse: () => void): StorePart {
  const part = partOf(id);
  refuseInUse();
  const { directory: way, found } = makeWay(place.root(), place.parents);
  let home: number;
  try {
    refuseTarget(way, place.name);
    // It is to be synced in the end: one that cannot be is found before anything is fetched.
    home = openForSync(way);
  } finally {
    closeSync(way);
  }
  let fd: number | undefined;
  try {
    fd = openOrCreate(home, part);
    const { size, uid } = fstatSync(fd);
    if (uid !== process.geteuid?.()) throw new InputError("forbidden-path", `${part} was made by another user`);
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
  /** Descriptor of the directory that both names are in. */
  readonly home: number;
  readonly fd: number;
  readonly bytes: number;
  /** How many of the directory's names were there before. */
  readonly found: number;
  readonly refuseInUse: () => void;
}

function opened(options: OpenedPart): StorePart {
  const { place, part, home, fd, bytes } = options;
  let is: "open" | "publishing" | "closed" = "open";
  // Descriptors that are in use by a call are not closed: their numbers would soon be those of something else.
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
          if (afterwards !== undefined) throw new HostError("storage-failed", `${part} was given up`);
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
    throw new InputError("not-found", `the directory ${path} was moved or removed meanwhile`);
  if (!isStill(home, part, fd)) throw new InputError("not-found", `${part} in ${path} was moved or removed meanwhile`);
  refuseTarget(home, name);
  await rename(at(home, part), at(home, name));
  await syncDescriptor(home);
  // Directories that were made for it are entries of those above them.
  for (let depth = found; depth < parents.length; depth += 1) {
    await syncDirectory(place.root(), parents.slice(0, depth));
  }
}

/** Neither the time nor the inode changes with the name; the number of the device may with every start of the machine. */
function markOf(fd: number): string {
  const { ino, size, mtimeNs } = fstatSync(fd, { bigint: true });
  return `${ino} ${size} ${mtimeNs}`;
}

/** Whether the file at a place is the part that had this mark; its name is on the disk then. */
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

/** Has what was made or removed in a directory on the disk. */
export async function syncDirectory(root: number, names: readonly string[]): Promise<void> {
  const look = descend(root, names);
  let fd: number;
  try {
    fd = openForSync(look);
  } finally {
    closeSync(look);
  }
  await holding(fd, (fd) => syncDescriptor(fd));
}

/** Whether a name still is that of an open file. */
function isStill(directory: number, name: string, fd: number): boolean {
  const there = lstatSync(at(directory, name), { bigint: true, throwIfNoEntry: false });
  return there !== undefined && identityOf(there) === identityOf(fstatSync(fd, { bigint: true }));
}

/** Whether a directory still is where it was opened. */
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

/** Removes the part of a task; nothing when there is none. */
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
  throw new InputError("bad-path", `${shown(id)} is no id of a task`);
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

/** Only a regular file is replaced. */
function refuseTarget(directory: number, name: string): void {
  const stat = lstatSync(at(directory, name), { throwIfNoEntry: false });
  if (stat === undefined || stat.isFile()) return;
  if (stat.isSymbolicLink()) throw new InputError("forbidden-path", `${shown(name)} is a link, which is not replaced`);
  throw new InputError(
    "not-a-file",
    `${shown(name)} is ${stat.isDirectory() ? "a directory" : "not a regular file"}, which is not replaced`,
  );
}
