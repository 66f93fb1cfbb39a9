import { constants } from "node:fs";
import { open, realpath, stat, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { errnoOf, HostError, InputError, toError } from "../../errors.ts";
import { ReleaseFile } from "../../protocol/documents/release.ts";
import type { Clock } from "../clock.ts";

/** An open file of a release. The caller streams it or closes it. */
export interface OpenReleaseFile {
  readonly size: number;
  /** A strong validator (RFC 9110 §8.8.1) without quotes; changes with the content. */
  readonly tag: string;
  /** Unix milliseconds. */
  readonly modifiedAt: number;
  /** Returns the bytes from `first` to `last`. Closes the file at the end, on cancel, or if the reader stalls. */
  stream(first: number, last: number): ReadableStream<Uint8Array>;
  close(): Promise<void>;
}

/** The regular files of one directory. */
export interface ReleaseFiles {
  /**
   * Opens a file by its plain name; undefined if it is not a regular file.
   * @throws {InputError} `busy` if the limit of open files is reached; {HostError} `file-failed`.
   */
  open(name: string): Promise<OpenReleaseFile | undefined>;
}

const CHUNK_BYTES = 64 * 1024;
const STALL_MS = 60_000;
const MAX_OPEN = 256;
const NOT_THERE: ReadonlySet<string | undefined> = new Set(["ENOENT", "ELOOP", "EISDIR", "ENXIO", "ENOTDIR"]);

/**
 * Returns the files of a directory, which must exist.
 * @throws {InputError} `invalid-settings`
 */
export async function releaseFiles(directory: string, clock: Clock, maxOpen = MAX_OPEN): Promise<ReleaseFiles> {
  const root = await realpath(directory).catch((error: unknown) => refuse(directory, toError(error).message));
  if (!(await stat(root)).isDirectory()) refuse(directory, "it is not a directory");
  let opened = 0;
  return {
    async open(name) {
      if (!ReleaseFile.shape.name.safeParse(name).success) return undefined;
      if (opened >= maxOpen) throw new InputError("busy", `${maxOpen} release files are already being fetched`);
      opened += 1;
      const isOver = (): void => void (opened -= 1);
      const handle = await openPlain(join(root, name)).catch((error: unknown) => {
        isOver();
        throw error;
      });
      if (handle === undefined) isOver();
      return handle === undefined ? undefined : describe(handle, clock, isOver);
    },
  };
}

function refuse(directory: string, why: string): never {
  throw new InputError("invalid-settings", `--releases: ${directory} cannot be used: ${why}`);
}

/** Opens a regular file. Follows no link, which might lead outside, and does not block on a pipe. */
async function openPlain(path: string): Promise<FileHandle | undefined> {
  let handle: FileHandle | undefined;
  try {
    handle = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    if ((await handle.stat()).isFile()) return handle;
  } catch (error) {
    if (!NOT_THERE.has(errnoOf(error))) {
      throw new HostError("file-failed", `cannot open ${path}: ${toError(error).message}`, { cause: error });
    }
  }
  await handle?.close();
  return undefined;
}

async function describe(handle: FileHandle, clock: Clock, isOver: () => void): Promise<OpenReleaseFile> {
  const { size, ino, mtimeNs, ctimeNs } = await handle.stat({ bigint: true });
  let isOpen = true;
  const close = async (): Promise<void> => {
    if (!isOpen) return;
    isOpen = false;
    isOver();
    await handle.close();
  };
  return {
    size: Number(size),
    tag: [size, ino, mtimeNs, ctimeNs].map((part) => part.toString(36)).join("-"),
    modifiedAt: Number(mtimeNs / 1_000_000n),
    stream: (first, last) => streamOf(handle, { first, last, clock, close }),
    close,
  };
}

interface Part {
  readonly first: number;
  readonly last: number;
  readonly clock: Clock;
  readonly close: () => Promise<void>;
}

function streamOf(handle: FileHandle, { first, last, clock, close }: Part): ReadableStream<Uint8Array> {
  let at = first;
  let cancelStall = (): void => undefined;
  const end = (): Promise<void> => {
    cancelStall();
    return close();
  };
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        cancelStall();
        const buffer = new Uint8Array(Math.min(CHUNK_BYTES, last + 1 - at));
        const { bytesRead } = buffer.length === 0 ? { bytesRead: 0 } : await handle.read(buffer, 0, buffer.length, at);
        if (bytesRead > 0) controller.enqueue(buffer.subarray(0, bytesRead));
        at += bytesRead;
        if (at > last) {
          await end();
          controller.close();
        } else if (bytesRead === 0) {
          await end();
          controller.error(new HostError("file-failed", "the file was truncated while it was read"));
        } else {
          cancelStall = clock.after(STALL_MS, () => {
            controller.error(new HostError("timeout", "timed out: the client does not read the file"));
            void close();
          });
        }
      },
      cancel: end,
    },
    { highWaterMark: 0 },
  );
}
