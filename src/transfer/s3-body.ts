import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { SessionError } from "../errors.ts";
import { readAt } from "../host/files/open-bytes.ts";

/** The file that is uploaded. */
export interface Source {
  readonly fd: number;
  readonly bytes: number;
  /** @throws {InputError} `changed` when it is no longer the file that was opened */
  verify(): void;
}

/** Bytes of a file, from the first up to the other position. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

/** What moves is counted, and held below a rate. */
export interface Pacer {
  add(bytes: number): void;
  /** Waits until more may move. */
  pause(signal: AbortSignal): Promise<void>;
  /** Bytes to move at a time, of the most that would be moved. */
  pieceBytes(most: number): number;
}

const HASH_BYTES = 1024 * 1024;
const PIECE_BYTES = 256 * 1024;
/** https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html */
const HASH_HEADER = "x-amz-content-sha256";

/** Hash of bytes of a file, in hexadecimal digits. @throws {SessionError} `changed`; {HostError} `storage-failed`; the signal's reason */
export async function hashOf(
  algorithm: "md5" | "sha256",
  source: Source,
  span: Span,
  signal: AbortSignal,
): Promise<string> {
  const hash = createHash(algorithm);
  const buffer = Buffer.allocUnsafeSlow(Math.max(1, Math.min(HASH_BYTES, span.to - span.from)));
  for (let at = span.from; at < span.to;) {
    signal.throwIfAborted();
    const count = readSome(source, buffer, at, span.to);
    hash.update(buffer.subarray(0, count));
    at += count;
    // Orders come in between.
    await new Promise((resolve) => setImmediate(resolve));
  }
  return hash.digest("hex");
}

/**
 * Bytes of a file as the body of a request. They are read twice: their SHA-256 is signed before they are sent, so that what arrives is
 * what was read, or is refused.
 */
export async function fileBody(source: Source, span: Span, pacer: Pacer, signal: AbortSignal): Promise<Readable> {
  const sha256 = await hashOf("sha256", source, span, signal);
  const body = Readable.from(piecesOf(source, span, pacer, signal), { objectMode: false, highWaterMark: PIECE_BYTES });
  return Object.assign(body, { sha256 });
}

/** Puts the hash of a file's bytes where the SDK looks for it when it signs a request. */
export function tellHash(request: unknown): void {
  if (typeof request !== "object" || request === null || !("body" in request) || !("headers" in request)) return;
  const { body, headers } = request;
  if (!(body instanceof Readable) || !("sha256" in body) || typeof headers !== "object" || headers === null) return;
  Reflect.set(headers, HASH_HEADER, body.sha256);
}

async function* piecesOf(source: Source, span: Span, pacer: Pacer, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  for (let at = span.from; at < span.to;) {
    await pacer.pause(signal);
    const buffer = Buffer.allocUnsafeSlow(Math.min(pacer.pieceBytes(PIECE_BYTES), span.to - at));
    const count = readSome(source, buffer, at, span.to);
    at += count;
    yield buffer.subarray(0, count);
    pacer.add(count);
  }
}

function readSome(source: Source, buffer: Buffer, at: number, end: number): number {
  const count = readAt(source.fd, buffer.subarray(0, Math.min(buffer.length, end - at)), 0, at);
  if (count === 0) throw new SessionError("changed", "the file was cut short while it was sent");
  return count;
}
