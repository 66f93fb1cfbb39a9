import {
  closeSync,
  constants,
  fstatSync,
  ftruncateSync,
  lstatSync,
  openSync,
  renameSync,
  statfsSync,
  writeSync,
} from "node:fs";
import { randomBytes } from "node:crypto";
import { HostError, toError } from "../../errors.ts";
import type { Files } from "./files.ts";

/** Disk space held in a file, to be released piece by piece when the disk is full. */
export interface Reserve {
  /** Frees at least this many bytes; returns false if less is left. */
  release(bytes: number): boolean;
  /**
   * Restores the reserve to full size if at least that much stays free besides. Sets aside anything in its place that is not a
   * regular file.
   * @throws {HostError} `disk-full` if there is no room; `read-only`, `file-failed`
   */
  refill(): void;
}

const MAX_BYTES = 2 * 1024 * 1024;
/** Largest share of a small disk that the reserve uses. */
const MAX_SHARE = 1 / 16;
const BLOCK = 4096;

/** Returns a reserve at `path`, on the file system of `directory`. The first `refill` creates the file. */
export function diskReserve(directory: string, path = `${directory}/reserve`): Reserve {
  const withFile = <T>(flags: number, work: (fd: number, size: number) => T): T => {
    const fd = openSync(path, flags | constants.O_NOFOLLOW | constants.O_NONBLOCK, 0o600);
    try {
      const found = fstatSync(fd);
      if (!found.isFile()) throw new HostError("file-failed", `${path} is not a regular file; remove it`);
      return work(fd, found.size);
    } finally {
      closeSync(fd);
    }
  };
  return {
    release(bytes) {
      try {
        return withFile(constants.O_WRONLY, (fd, size) => {
          if (size < bytes) return false;
          ftruncateSync(fd, Math.floor((size - bytes) / BLOCK) * BLOCK);
          return true;
        });
      } catch {
        return false; // no reserve
      }
    },
    refill() {
      try {
        const { bsize, blocks, bavail } = statfsSync(directory);
        if (lstatSync(path, { throwIfNoEntry: false })?.isFile() === false) renameSync(path, `${path}.damaged`);
        const whole = Math.floor(Math.min(MAX_BYTES, blocks * bsize * MAX_SHARE) / BLOCK) * BLOCK;
        withFile(constants.O_WRONLY | constants.O_CREAT, (fd, size) => {
          const missing = whole - size;
          if (missing <= 0) return;
          if (bavail * bsize < missing + whole) throw new HostError("disk-full", `${directory} is full`);
          try {
            // A compressing file system would store zeros without using space.
            for (let at = size; at < whole; at += writeSync(fd, randomBytes(whole - at), 0, whole - at, at));
          } catch (error) {
            ftruncateSync(fd, size);
            throw error;
          }
        });
      } catch (error) {
        if (error instanceof HostError) throw error;
        const code = codeOf(error);
        throw new HostError(code, `cannot set space aside in ${path}: ${toError(error).message}`, { cause: error });
      }
    },
  };
}

function codeOf(error: unknown): string {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  if (code === "EROFS") return "read-only";
  return code === "ENOSPC" || code === "EDQUOT" ? "disk-full" : "file-failed";
}

/** Wraps `files`: a write below one of the directories that fails because the disk is full is retried with space from the reserve. */
export function filesWithReserve(
  files: Files,
  reserve: Reserve,
  directories: readonly string[],
  onUsed: (error: Error) => void,
): Files {
  return {
    ...files,
    async writeAtomic(path, text, mode) {
      try {
        await files.writeAtomic(path, text, mode);
      } catch (error) {
        const isFull = error instanceof HostError && error.code === "disk-full";
        const isServed = directories.some((directory) => path.startsWith(`${directory}/`));
        // The directory may grow by a block as well.
        if (!isFull || !isServed || !reserve.release(Buffer.byteLength(text) + 2 * BLOCK)) throw error;
        onUsed(error);
        await files.writeAtomic(path, text, mode);
      }
    },
  };
}
