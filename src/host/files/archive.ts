import { constants, createWriteStream, existsSync } from "node:fs";
import { open, rename, rm, stat } from "node:fs/promises";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { buffer } from "node:stream/consumers";
import { createGzip } from "node:zlib";
import { errnoOf, HostError, InputError, toError } from "../../errors.ts";
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
  const part = `${path}.${process.pid}.part`;
  const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
  try {
    const file = await open(part, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
    await file.chmod(0o600);
    const output = createWriteStream("", { fd: file, flush: true });
    await pipeline(Readable.from(blocksOf(files, at)), createGzip(), output, { signal });
    await rename(part, path);
    return (await stat(path)).size;
  } catch (thrown) {
    await rm(part, { force: true }).catch(() => undefined);
    signal.throwIfAborted();
    const error = toError(thrown);
    const code = { ENOSPC: "disk-full", EDQUOT: "disk-full", EACCES: "access-denied", EROFS: "read-only" }[
      errnoOf(error) ?? ""
    ];
    throw new HostError(code ?? "file-failed", `cannot write ${path}: ${error.message}`, { cause: error });
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
