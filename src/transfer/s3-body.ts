import { createHash } from "node:crypto";
import { Readable } from "node:stream";
import { SessionError } from "../errors.ts";
import { readAt } from "../host/files/open-bytes.ts";

/** The uploaded file. */
export interface Source {
  readonly fd: number;
  readonly bytes: number;
  /** @throws {InputError} `changed` if the file was replaced or modified */
  verify(): void;
}

/** A byte range of a file. */
export interface Span {
  readonly from: number;
  readonly to: number;
}

/** Counts transferred bytes and limits their rate. */
export interface Pacer {
  add(bytes: number): void;
  /** Waits until more bytes may be sent. */
  pause(signal: AbortSignal): Promise<void>;
  /** Returns the size of the next piece, at most the given one. */
  pieceBytes(most: number): number;
}

const HASH_BYTES = 1024 * 1024;
const PIECE_BYTES = 256 * 1024;
/** https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html */
const HASH_HEADER = "x-amz-content-sha256";

/** Returns the hash of a byte range in hexadecimal. @throws {SessionError} `changed`; {HostError} `storage-failed`; the signal's reason */
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
    // Yields so that orders are handled.
    await new Promise((resolve) => setImmediate(resolve));
  }
  return hash.digest("hex");
}

/**
 * A byte range of a file as a request body. It is read twice: its SHA-256 is signed before it is sent, so the server rejects a body that
 * differs.
 */
export async function fileBody(source: Source, span: Span, pacer: Pacer, signal: AbortSignal): Promise<Readable> {
  const sha256 = await hashOf("sha256", source, span, signal);
  const body = Readable.from(piecesOf(source, span, pacer, signal), { objectMode: false, highWaterMark: PIECE_BYTES });
  return Object.assign(body, { sha256 });
}

/** Sets the body's hash in the header that the SDK signs. */
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
