import { closeSync, constants, fstatSync, openSync } from "node:fs";
import { InputError } from "../../errors.ts";
import type { Name } from "./descriptors.ts";
import { descend, openEntry, via } from "./descriptors.ts";
import { shown } from "./parse-path.ts";
import type { StoreFile } from "./store.ts";

/** Where something is in the store. */
export interface Place {
  /** The root's descriptor; asked for each time. */
  readonly root: () => number;
  /** The names of the directory, and the one in it. */
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
 * Opens what is found to be a regular file with one name, and nothing else: opening a device or a FIFO could already do something, and a
 * second name may be that of a file outside.
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

/** Closes a descriptor once, however often it is called: its number soon is that of something else. */
export function closing(fd: number): () => void {
  let isOpen = true;
  return () => {
    if (isOpen) closeSync(fd);
    isOpen = false;
  };
}
