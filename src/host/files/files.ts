import { randomBytes } from "node:crypto";
import { constants } from "node:fs";
import { mkdir, open, readdir, rename, rm, statfs, unlink } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { errnoOf, HostError, toError } from "../../errors.ts";
import { readRegularFile } from "./regular-file.ts";

export interface DiskSpace {
  readonly totalBytes: number;
  /** Bytes available to an unprivileged process. */
  readonly freeBytes: number;
  readonly usedBytes: number;
}

/** Files below a root: `/` in production, a temporary directory in tests. Paths are absolute from that root. */
export interface Files {
  /** Returns the text of a regular file of at most 128 MiB, or undefined if there is none. */
  read(path: string): Promise<string | undefined>;
  /** Replaces a file atomically and durably: temporary file, fsync, rename, fsync of the directory. */
  writeAtomic(path: string, text: string, mode: number): Promise<void>;
  /** Renames a file within a directory durably. */
  move(from: string, to: string): Promise<void>;
  /** Removes a file, if it exists. */
  remove(path: string): Promise<void>;
  /** Makes a directory and its parents durably. */
  makeDirectory(path: string, mode: number): Promise<void>;
  /** Returns the names in a directory; empty if the directory does not exist. */
  list(path: string): Promise<readonly string[]>;
  /** Removes temporary files that interrupted writes left in a directory. The caller must be its only user. */
  sweep(path: string): Promise<void>;
  space(path: string): Promise<DiskSpace>;
}

const MAX_READ_BYTES = 128 * 1024 * 1024;
/** Matches the name of a temporary file. */
const TEMPORARY = /\.[0-9a-f]{12}\.tmp$/;

/**
 * Real files below `root`.
 * @throws {HostError} `disk-full`, `read-only`, `access-denied` or `file-failed`, with the path in its message.
 */
export function hostFiles(root = "/"): Files {
  // If the root is `/`, relative paths start at the working directory.
  const at = (path: string): string => (root === "/" ? path : join(root, path));
  return {
    async read(path) {
      try {
        return (await readRegularFile(at(path), MAX_READ_BYTES)).toString("utf8");
      } catch (error) {
        if (isAbsent(error)) return undefined;
        throw fileError("read", path, error);
      }
    },
    async writeAtomic(path, text, mode) {
      const target = at(path);
      const temporary = `${target}.${randomBytes(6).toString("hex")}.tmp`;
      try {
        await writeSynced(temporary, text, mode);
        await rename(temporary, target);
        await syncDirectory(dirname(target));
      } catch (error) {
        await rm(temporary, { force: true }).catch(() => undefined);
        throw fileError("write", path, error);
      }
    },
    async move(from, to) {
      try {
        await rename(at(from), at(to));
        await syncDirectory(dirname(at(to)));
      } catch (error) {
        throw fileError("rename", from, error);
      }
    },
    async remove(path) {
      try {
        await unlink(at(path));
        await syncDirectory(dirname(at(path)));
      } catch (error) {
        if (!isAbsent(error)) throw fileError("remove", path, error);
      }
    },
    async makeDirectory(path, mode) {
      try {
        const first = await mkdir(at(path), { recursive: true, mode });
        if (first === undefined) return;
        for (let made = resolve(at(path)); made.length >= first.length; made = dirname(made)) {
          await syncDirectory(dirname(made));
        }
      } catch (error) {
        throw fileError("create", path, error);
      }
    },
    async list(path) {
      try {
        return await readdir(at(path));
      } catch (error) {
        if (isAbsent(error)) return [];
        throw fileError("list", path, error);
      }
    },
    async sweep(path) {
      try {
        const leftovers = (await readdir(at(path))).filter((name) => TEMPORARY.test(name));
        for (const name of leftovers) await rm(at(join(path, name)), { force: true });
        if (leftovers.length > 0) await syncDirectory(at(path));
      } catch (error) {
        if (!isAbsent(error)) throw fileError("clean up", path, error);
      }
    },
    async space(path) {
      try {
        const { bsize, blocks, bfree, bavail } = await statfs(at(path));
        return { totalBytes: blocks * bsize, freeBytes: bavail * bsize, usedBytes: (blocks - bfree) * bsize };
      } catch (error) {
        throw fileError("measure", path, error);
      }
    },
  };
}

async function writeSynced(path: string, text: string, mode: number): Promise<void> {
  const { O_WRONLY, O_CREAT, O_TRUNC, O_NOFOLLOW } = constants;
  const file = await open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, mode);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}

/** Makes a rename or an unlink durable (fsync(2) on the directory). */
export async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}

function isAbsent(error: unknown): boolean {
  return errnoOf(error) === "ENOENT";
}

const FILE_CODES: Readonly<Record<string, string>> = {
  ENOSPC: "disk-full",
  EDQUOT: "disk-full",
  EROFS: "read-only",
  EACCES: "access-denied",
  EPERM: "access-denied",
};

function fileError(verb: string, path: string, error: unknown): HostError {
  const code = FILE_CODES[errnoOf(error) ?? ""] ?? "file-failed";
  return new HostError(code, `cannot ${verb} ${path}: ${toError(error).message}`, { cause: error, details: { path } });
}
