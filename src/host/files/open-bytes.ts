import { fdatasync, fstatSync, ftruncateSync, readSync, writeSync } from "node:fs";
import { errnoOf, HostError, toError } from "../../errors.ts";

/** Writes `bytes` from index `from` to `to` at a position of an open file (pwrite(2)). @throws {HostError} `disk-full`, `storage-failed` */
export function writeAt(fd: number, bytes: Uint8Array, from: number, to: number, position: number): void {
  try {
    let at = from;
    while (at < to) at += writeSync(fd, bytes, at, to - at, position + at - from);
  } catch (error) {
    throw ioError("write", error);
  }
}

/**
 * Reads into `bytes` from index `from` and returns the number of bytes read; 0 at the end of the file. @throws {HostError}
 * `storage-failed`
 */
export function readAt(fd: number, bytes: Uint8Array, from: number, position: number): number {
  try {
    return readSync(fd, bytes, from, bytes.length - from, position);
  } catch (error) {
    throw ioError("read", error);
  }
}

/** Truncates an open file to a length in bytes. @throws {HostError} `storage-failed` */
export function truncate(fd: number, bytes: number): void {
  try {
    ftruncateSync(fd, bytes);
  } catch (error) {
    throw ioError("truncate", error);
  }
}

/** Returns the length of an open file in bytes. @throws {HostError} `storage-failed` */
export function lengthOf(fd: number): number {
  try {
    return fstatSync(fd).size;
  } catch (error) {
    throw ioError("measure", error);
  }
}

/** Flushes written data to the disk (fdatasync(2)). Rejects with {HostError} `disk-full`, `storage-failed`. */
export function datasync(fd: number): Promise<void> {
  return new Promise((resolve, reject) =>
    fdatasync(fd, (error) => (error === null ? resolve() : reject(ioError("sync", error)))),
  );
}

const FULL: ReadonlySet<string> = new Set(["ENOSPC", "EDQUOT", "EFBIG"]);

function ioError(verb: string, error: unknown): HostError {
  const code = FULL.has(errnoOf(error) ?? "") ? "disk-full" : "storage-failed";
  return new HostError(code, `cannot ${verb} the file: ${toError(error).message}`, { cause: error });
}
