import { chmodSync, closeSync, constants, fstatSync, mkdirSync, openSync, statSync } from "node:fs";
import { errnoOf, HostError, toError } from "../../errors.ts";
import { identityOf, makeDirectory } from "./descriptors.ts";
import { IMAGES, VOLUMES } from "./parse-path.ts";

/** A descriptor of the store's root. */
export interface Root {
  /**
   * Returns the current root's descriptor. Reopens it if another directory is at its path, as after a mount, and makes it again
   * if it is missing. Not to be kept across an await.
   * @throws {HostError} `storage-failed`
   */
  current(): number;
  close(): void;
}

/**
 * Opens the root, following links in its path, which the operator chooses. Makes missing directories with mode 0700, including
 * `images` and `volumes`.
 */
export function openRoot(path: string): Root {
  let open: { readonly fd: number; readonly identity: string } | undefined;
  let isClosed = false;
  const close = (): void => {
    if (open !== undefined) closeSync(open.fd);
    open = undefined;
  };
  const current = (): number => {
    if (isClosed) throw new HostError("storage-failed", "the data store is closed");
    const there = statSync(path, { bigint: true, throwIfNoEntry: false });
    if (open !== undefined && there !== undefined && identityOf(there) === open.identity) return open.fd;
    close();
    if (there === undefined) make(path);
    const fd = openSync(path, constants.O_RDONLY | constants.O_DIRECTORY);
    open = { fd, identity: identityOf(fstatSync(fd, { bigint: true })) };
    makeParts(fd);
    return fd;
  };
  const named = (): number => {
    try {
      return current();
    } catch (error) {
      if (error instanceof HostError) throw error;
      throw new HostError("storage-failed", `cannot use the data store ${path}: ${toError(error).message}`, {
        cause: error,
      });
    }
  };
  named();
  return {
    current: named,
    close: () => {
      isClosed = true;
      close();
    },
  };
}

function make(path: string): void {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  chmodSync(path, 0o700);
}

/** Makes the store's own directories. A full or read-only disk without them can still be listed and cleared. */
function makeParts(root: number): void {
  for (const name of [IMAGES, VOLUMES]) {
    try {
      makeDirectory(root, name);
    } catch (error) {
      if (!["ENOSPC", "EDQUOT", "EROFS"].includes(errnoOf(error) ?? "")) throw error;
    }
  }
}
