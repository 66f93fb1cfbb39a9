import { constants, createWriteStream, existsSync } from "node:fs";
import { open, rename, rm, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { buffer } from "node:stream/consumers";
import { createGunzip, createGzip } from "node:zlib";
import { AgentError, errnoOf, HostError, InputError, toError } from "../../errors.ts";
import { syncDirectory } from "./files.ts";
import { tarEnd, tarHeader, tarPadding } from "../../lib/formats/tar.ts";

export interface ArchiveFile {
  readonly name: string;
  readonly text: string;
}

/**
 * Writes a gzipped tar with mode 0600 and returns its size in bytes. The file appears under its name once it is complete. An
 * existing file stays.
 * @throws {InputError} `exists`; {HostError} `disk-full`, `access-denied` or `file-failed`; the partial file is removed.
 */
export async function writeArchive(
  path: string,
  files: readonly ArchiveFile[],
  at: number,
  signal: AbortSignal,
): Promise<number> {
  if (existsSync(path)) throw new InputError("exists", `${path} already exists; choose another name with --to`);
  return writeGzipped(path, blocksOf(files, at), signal);
}

/**
 * Writes a gzipped stream with mode 0600 and returns its size in bytes. The file appears under its name once it is complete and synced.
 * @throws {HostError} `disk-full`, `access-denied` or `file-failed`; what the stream throws. The partial file is removed.
 */
export async function writeGzipped(
  path: string,
  blocks: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
  signal: AbortSignal,
): Promise<number> {
  const part = `${path}.${process.pid}.part`;
  const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
  try {
    const file = await open(part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
    await file.chmod(0o600);
    const output = createWriteStream("", { fd: file, flush: true });
    await pipeline(Readable.from(blocks), createGzip(), output, { signal });
    await rename(part, path);
    await syncDirectory(dirname(path));
    return (await stat(path)).size;
  } catch (thrown) {
    await rm(part, { force: true }).catch(() => undefined);
    signal.throwIfAborted();
    if (thrown instanceof AgentError) throw thrown;
    const error = toError(thrown);
    const code = { ENOSPC: "disk-full", EDQUOT: "disk-full", EACCES: "access-denied", EROFS: "read-only" }[
      errnoOf(error) ?? ""
    ];
    throw new HostError(code ?? "file-failed", `cannot write ${path}: ${error.message}`, { cause: error });
  }
}

/**
 * Reads a gzipped regular file as a stream.
 * @throws {InputError} `not-gzip` for any other content, `damaged` if the end is missing or a byte is wrong; {HostError} `file-failed`
 */
export async function* readGzipped(path: string): AsyncGenerator<Uint8Array> {
  try {
    const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
    const input = file.createReadStream();
    const gunzip = createGunzip();
    try {
      const { bytesRead, buffer: magic } = (await file.stat()).isFile()
        ? await file.read(Buffer.alloc(2), 0, 2, 0)
        : { bytesRead: 0, buffer: Buffer.alloc(0) };
      if (bytesRead < 2 || magic[0] !== 0x1f || magic[1] !== 0x8b) {
        throw new InputError("not-gzip", `${path} is not a gzipped file`);
      }
      input.on("error", (error) => gunzip.destroy(error));
      yield* input.pipe(gunzip);
    } finally {
      gunzip.destroy();
      input.destroy();
    }
  } catch (thrown) {
    if (thrown instanceof AgentError) throw thrown;
    const error = toError(thrown);
    if (errnoOf(error)?.startsWith("Z_") === true) {
      throw new InputError("damaged", `${path} is truncated or damaged: ${error.message}`, { cause: error });
    }
    throw new HostError("file-failed", `cannot read ${path}: ${error.message}`, { cause: error });
  }
}

/** Returns a gzipped tar in memory. */
export async function packArchive(files: readonly ArchiveFile[], at: number, signal: AbortSignal): Promise<Buffer> {
  const gzip = createGzip();
  const [packed] = await Promise.all([buffer(gzip), pipeline(Readable.from(blocksOf(files, at)), gzip, { signal })]);
  return packed;
}

/** Writes bytes to standard output and resolves once they are flushed. */
export function writeOutput(bytes: Uint8Array): Promise<void> {
  return new Promise((resolve, reject) => {
    process.stdout.write(bytes, (error) => (error ? reject(error) : resolve()));
  });
}

function* blocksOf(files: readonly ArchiveFile[], at: number): Generator<Buffer> {
  for (const { name, text } of files) {
    const data = Buffer.from(text);
    yield tarHeader(name, data.length, at);
    if (data.length > 0) yield data;
    yield tarPadding(data.length);
  }
  yield tarEnd();
}
