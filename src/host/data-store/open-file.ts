import { closeSync, constants, fstatSync, openSync } from "node:fs";
import { InputError } from "../../errors.ts";
import type { Name } from "./descriptors.ts";
import { descend, openEntry, via } from "./descriptors.ts";
import { shown } from "./parse-path.ts";
import type { StoreFile } from "./store.ts";

/** A path in the store. */
export interface Place {
  /** Returns the root's descriptor; called each time. */
  readonly root: () => number;
  /** Names of the parent directories. */
  readonly parents: readonly string[];
  readonly name: string;
}

/**
 * Opens a regular file for reading.
 * @throws {InputError} `not-a-file`, `forbidden-path`; errors of the system.
 */
export function openFile({ root, parents, name }: Place): StoreFile {
  const parent = descend(root(), parents);
  try {
    const fd = openRegular(parent, name, constants.O_RDONLY);
    return { fd, bytes: fstatSync(fd).size, parts: [...parents, name], close: closing(fd) };
  } finally {
    closeSync(parent);
  }
}

/**
 * Opens an entry only if it is a regular file with one name. Opening a device or a FIFO could have side effects, and a second
 * name may be outside the store.
 */
export function openRegular(directory: number, name: Name, flags: number): number {
  const found = openEntry(directory, name);
  try {
    const stat = fstatSync(found);
    const path = shown(name.toString());
    if (stat.isSymbolicLink()) {
      throw new InputError("forbidden-path", `${path} is a link, and links are not followed`);
    }
    if (!stat.isFile()) {
      throw new InputError("not-a-file", `${path} is ${stat.isDirectory() ? "a directory" : "not a regular file"}`);
    }
    if (stat.nlink !== 1) {
      throw new InputError("forbidden-path", `${path} has ${stat.nlink} names, one of which may be outside`);
    }
    return openSync(via(found), flags | constants.O_NONBLOCK);
  } finally {
    closeSync(found);
  }
}

/** Returns a function that closes a descriptor at most once, because its number is soon reused. */
function closing(fd: number): () => void {
  let isOpen = true;
  return () => {
    if (isOpen) closeSync(fd);
    isOpen = false;
  };
}
