import { chmodSync, closeSync, constants, fstatSync, mkdirSync, openSync, statSync } from "node:fs";
import { errnoOf, HostError, toError } from "../../errors.ts";
import { identityOf, makeDirectory } from "./descriptors.ts";
import { IMAGES, VOLUMES } from "./parse-path.ts";

/** A descriptor of the store's root. */
export interface Root {
  /**
   * The root as it is now: opened again when another directory has come to its path, as when a disk is mounted there, and made again
   * when it is gone. Not to be kept across an await.
   * @throws {HostError} `storage-failed`
   */
  current(): number;
  close(): void;
}

/** The root's path is the operator's: links in it are followed. It is made with mode 0700 when missing, its two directories as well. */
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
      throw new HostError("storage-failed", `the data store ${path} cannot be used: ${toError(error).message}`, {
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

/** A store that cannot have them, on a disk that is full or read-only, is still one to be listed and cleared. */
function makeParts(root: number): void {
  for (const name of [IMAGES, VOLUMES]) {
    try {
      makeDirectory(root, name);
    } catch (error) {
      if (!["ENOSPC", "EDQUOT", "EROFS"].includes(errnoOf(error) ?? "")) throw error;
    }
  }
}
