import {
  closeSync,
  constants,
  fstatSync,
  openSync,
  readdirSync,
  readlinkSync,
  readSync,
  statfsSync,
  statSync,
} from "node:fs";
import { join } from "node:path";
import type { DiskSpace } from "./files/files.ts";

/** Small non-blocking reads of kernel files; returns undefined for anything unreadable or not a file. */
export interface Reader {
  /** Returns the text of a file, up to 1 MiB. */
  read(path: string): string | undefined;
  /** Returns the sorted names in a directory; undefined if it cannot be read. */
  list(path: string): readonly string[] | undefined;
  /** Returns the target of a symbolic link. */
  linkTarget(path: string): string | undefined;
  /** Returns a value that changes when the file at the path is replaced or rewritten. */
  fingerprint(path: string): string | undefined;
  /** Returns the capacity of the path's file system (statfs(2)). */
  space(path: string): DiskSpace | undefined;
}

const MAX_BYTES = 1024 * 1024;
const BUFFER_BYTES = 16 * 1024;
/** Opening does not block on a pipe. */
const FLAGS = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY;

/** Returns a reader below `root` with one reused buffer; `root` is `/` in production, a temporary directory in tests. */
export function hostReader(root = "/"): Reader {
  const at = root === "/" ? (path: string): string => path : (path: string): string => join(root, path);
  const reused = Buffer.allocUnsafeSlow(BUFFER_BYTES);

  /** Reads until the end, because kernel files report no size. */
  function fill(fd: number): Buffer {
    // A larger buffer is not kept: only the socket table can need a megabyte.
    let buffer = reused;
    let length = 0;
    for (;;) {
      const count = readSync(fd, buffer, length, buffer.length - length, null);
      length += count;
      if (count === 0 || length >= MAX_BYTES) return buffer.subarray(0, length);
      if (length < buffer.length) continue;
      const larger = Buffer.allocUnsafeSlow(Math.min(buffer.length * 4, MAX_BYTES));
      buffer.copy(larger, 0, 0, length);
      buffer = larger;
    }
  }

  return {
    read: (path) =>
      attempt(() => {
        const fd = openSync(at(path), FLAGS);
        try {
          if (!fstatSync(fd).isFile()) return undefined;
          return fill(fd).toString("utf8");
        } finally {
          closeSync(fd);
        }
      }),
    list: (path) => attempt(() => readdirSync(at(path)).sort()),
    linkTarget: (path) => attempt(() => readlinkSync(at(path))),
    fingerprint: (path) => {
      const stat = attempt(() => statSync(at(path), { throwIfNoEntry: false }));
      return stat === undefined ? undefined : `${stat.dev}:${stat.ino}:${stat.size}:${stat.mtimeMs}`;
    },
    space: (path) =>
      attempt(() => {
        const { bsize, blocks, bfree, bavail } = statfsSync(at(path));
        return { totalBytes: blocks * bsize, freeBytes: bavail * bsize, usedBytes: (blocks - bfree) * bsize };
      }),
  };
}

function attempt<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}
