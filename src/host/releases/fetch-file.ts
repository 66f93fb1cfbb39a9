import { createHash, type Hash } from "node:crypto";
import { constants } from "node:fs";
import { lstat, open, type FileHandle } from "node:fs/promises";
import { AgentError, errnoOf, HostError, InputError, SessionError, toError } from "../../errors.ts";
import type { Clock } from "../clock.ts";
import type { Files } from "../files/files.ts";
import type { OpenedFile, ReleaseSource } from "./release-source.ts";
import { FETCH_LIMITS, withRetries, type FetchLimits, type Retrying } from "./retries.ts";

export interface FileToFetch {
  readonly address: string;
  /** Destination path; `PATH.from` beside it holds the validator to resume with. */
  readonly path: string;
  readonly size: number;
  readonly sha256: string;
}

export interface FetchFileDeps extends Retrying {
  readonly limits?: FetchLimits;
  readonly source: ReleaseSource;
  readonly files: Files;
}

/**
 * Fetches a file of known size and hash, resuming an earlier attempt, even of another process. Hashes bytes as they arrive and
 * rehashes those from earlier. Keeps the bytes of a failed attempt unless they cannot be right.
 * @throws {InputError} `size-mismatch`, `length-unknown`, `hash-mismatch` and errors of the source; {HostError} `disk-full`,
 *   `file-failed`; {SessionError} errors of the source, `too-slow`, `too-long`
 */
export async function fetchFile(wanted: FileToFetch, deps: FetchFileDeps, signal: AbortSignal): Promise<void> {
  const { clock, limits = FETCH_LIMITS } = deps;
  const overdue = new AbortController();
  const seconds = limits.maxMs / 1000;
  const stop = clock.after(limits.maxMs, () =>
    overdue.abort(new SessionError("too-long", `fetching the package took longer than ${seconds} s`)),
  );
  const limit = AbortSignal.any([signal, overdue.signal]);
  const part = await Part.open(wanted);
  try {
    await inAttempts(part, wanted, deps, limit);
  } catch (error) {
    throw limit.aborted ? toError(limit.reason) : storageError(wanted.path, error);
  } finally {
    stop();
    await part.close();
  }
}

async function inAttempts(part: Part, wanted: FileToFetch, deps: FetchFileDeps, signal: AbortSignal): Promise<void> {
  const { clock, limits = FETCH_LIMITS } = deps;
  let validator = (await deps.files.read(`${wanted.path}.from`))?.trim();
  await part.rehash(signal);
  // An earlier part may mix bytes of two files, and the hash does not show which are wrong.
  let isTrusted = part.bytes === 0;
  const attempt = async (): Promise<boolean> => {
    try {
      if (part.bytes < wanted.size) await fetchOnce();
    } catch (error) {
      if (error instanceof SessionError && error.code === "bad-range") await part.restart();
      throw error;
    }
    const found = part.digest();
    if (found === wanted.sha256) return true;
    await part.restart();
    if (!isTrusted) return false;
    throw new InputError("hash-mismatch", `the package has SHA-256 ${found}, but the manifest says ${wanted.sha256}`);
  };
  const isFetched = await withRetries(attempt, deps, signal);
  // The part was discarded; fetch the whole file in this attempt.
  if (!isFetched) await withRetries(attempt, deps, signal);
  await part.sync();

  async function fetchOnce(): Promise<void> {
    if (part.bytes > 0 && (validator === undefined || validator === "")) await part.restart();
    const from = { start: part.bytes, ...(validator === undefined || validator === "" ? {} : { validator }) };
    const opened = await deps.source.open(wanted.address, from, signal);
    try {
      if (opened.total === undefined) {
        throw new InputError(
          "length-unknown",
          `the server does not report the package's length, which must be ${wanted.size} bytes`,
        );
      }
      if (opened.total !== wanted.size) {
        throw new InputError(
          "size-mismatch",
          `the package has ${opened.total} bytes, but the manifest says ${wanted.size}`,
        );
      }
      if (opened.start !== part.bytes) await part.restart();
      if (part.bytes === 0) {
        isTrusted = true;
        validator = opened.validator;
        await deps.files.writeAtomic(`${wanted.path}.from`, `${validator ?? ""}\n`, 0o600);
      }
      await receive(opened, part, wanted, { clock, limits }, signal);
    } finally {
      opened.close();
    }
  }
}

/** Returns the number of bytes fetched into a file; 0 if it does not exist. */
export async function fetchedBytes(path: string): Promise<number> {
  try {
    return (await lstat(path)).size;
  } catch {
    return 0;
  }
}

/** Appends a body to the part until it ends. */
async function receive(
  { body }: OpenedFile,
  part: Part,
  { size }: FileToFetch,
  { clock, limits }: { readonly clock: Clock; readonly limits: FetchLimits },
  signal: AbortSignal,
): Promise<void> {
  const ended = new AbortController();
  const stopWatch = watch(part, { clock, limits }, (error) => ended.abort(error));
  const limit = AbortSignal.any([signal, ended.signal]);
  const iterator = body[Symbol.asyncIterator]();
  try {
    while (true) {
      const next = await orAbort(iterator.next(), limit);
      if (next.done === true) break;
      if (part.bytes + next.value.length > size) {
        await part.restart();
        throw new InputError("size-mismatch", `the server sent more than the ${size} bytes of the manifest`);
      }
      await part.append(next.value);
    }
  } catch (error) {
    if (limit.aborted) throw toError(limit.reason);
    if (error instanceof AgentError || isStorage(error)) throw error;
    throw new SessionError("cut-off", `the connection broke after ${part.bytes} bytes: ${toError(error).message}`, {
      cause: error,
    });
  } finally {
    stopWatch();
  }
  if (part.bytes < size) throw new SessionError("cut-off", `the connection ended after ${part.bytes} of ${size} bytes`);
}

/** Calls `fail` once if no data arrives, or too little. */
function watch(
  part: Part,
  { clock, limits }: { readonly clock: Clock; readonly limits: FetchLimits },
  fail: (error: SessionError) => void,
): () => void {
  const { stallMs, rateMs, minBytesPerSecond } = limits;
  let seen = part.bytes;
  let seenAt = clock.elapsed();
  let window = { bytes: part.bytes, at: clock.elapsed() };
  const tick = (): void => {
    const now = clock.elapsed();
    if (part.bytes !== seen) [seen, seenAt] = [part.bytes, now];
    if (now - seenAt >= stallMs) return fail(new SessionError("stalled", `no data received for ${stallMs / 1000} s`));
    if (now - window.at >= rateMs) {
      const rate = Math.floor(((part.bytes - window.bytes) * 1000) / (now - window.at));
      if (rate < minBytesPerSecond) {
        return fail(
          new SessionError("too-slow", `received ${rate} bytes/s, below the minimum of ${minBytesPerSecond} bytes/s`),
        );
      }
      window = { bytes: part.bytes, at: now };
    }
    stop = clock.after(tickMs, tick);
  };
  const tickMs = Math.max(1, Math.min(500, stallMs / 4, rateMs / 4));
  let stop = clock.after(tickMs, tick);
  return () => stop();
}

function orAbort<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(toError(signal.reason));
    if (signal.aborted) onAbort();
    signal.addEventListener("abort", onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}

/** The partly fetched file. */
class Part {
  bytes = 0;
  readonly #file: FileHandle;
  #hash: Hash = createHash("sha256");

  private constructor(file: FileHandle) {
    this.#file = file;
  }

  static async open({ path }: FileToFetch): Promise<Part> {
    try {
      const { O_RDWR, O_CREAT, O_NOFOLLOW } = constants;
      return new Part(await open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0o600));
    } catch (error) {
      throw storageError(path, error);
    }
  }

  /** Hashes the bytes already on disk. */
  async rehash(signal: AbortSignal): Promise<void> {
    const piece = Buffer.allocUnsafe(1024 * 1024);
    while (true) {
      signal.throwIfAborted();
      const { bytesRead } = await this.#file.read(piece, 0, piece.length, this.bytes);
      if (bytesRead === 0) return;
      this.#hash.update(piece.subarray(0, bytesRead));
      this.bytes += bytesRead;
    }
  }

  async append(bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length;) {
      const { bytesWritten } = await this.#file.write(bytes, at, bytes.length - at, this.bytes + at);
      at += bytesWritten;
    }
    this.#hash.update(bytes);
    this.bytes += bytes.length;
  }

  async restart(): Promise<void> {
    await this.#file.truncate(0);
    this.bytes = 0;
    this.#hash = createHash("sha256");
  }

  digest(): string {
    return this.#hash.copy().digest("hex");
  }

  sync(): Promise<void> {
    return this.#file.sync();
  }

  close(): Promise<void> {
    return this.#file.close();
  }
}

const isStorage = (error: unknown): boolean => ["ENOSPC", "EDQUOT", "EIO", "EROFS"].includes(errnoOf(error) ?? "");

function storageError(path: string, error: unknown): Error {
  if (error instanceof AgentError) return error;
  const code = ["ENOSPC", "EDQUOT"].includes(errnoOf(error) ?? "") ? "disk-full" : "file-failed";
  return new HostError(code, `cannot write ${path}: ${toError(error).message}`, { cause: error, details: { path } });
}
