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

/** Small reads of the kernel's own files, which never block; anything that cannot be read, or is no file, is undefined. */
export interface Reader {
  /** The text of a file, at most 1 MiB of it. */
  read(path: string): string | undefined;
  /** Names in a directory, sorted; undefined when it cannot be read. */
  list(path: string): readonly string[] | undefined;
  /** What a symbolic link says. */
  linkTarget(path: string): string | undefined;
  /** Changes whenever the file at the end of the path is replaced or rewritten. */
  fingerprint(path: string): string | undefined;
  /** Capacity of the file system that holds the path (statfs(2)). */
  space(path: string): DiskSpace | undefined;
}

const MAX_BYTES = 1024 * 1024;
const BUFFER_BYTES = 16 * 1024;
/** Opens without waiting for the other end of a pipe in place of a file. */
const FLAGS = constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY;

/** Reads below `root` through one buffer that is reused: `/` in production, a temporary directory in tests. */
export function hostReader(root = "/"): Reader {
  const at = root === "/" ? (path: string): string => path : (path: string): string => join(root, path);
  const reused = Buffer.allocUnsafeSlow(BUFFER_BYTES);

  /** The kernel's files have no size to ask for, so they are read until they end. */
  function fill(fd: number): Buffer {
    // A larger one is not kept: the table of sockets can need a megabyte, and hardly anything else does.
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
