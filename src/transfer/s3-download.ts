import type { GetObjectCommandOutput } from "@aws-sdk/client-s3";
import { Readable } from "node:stream";
import { SessionError } from "../errors.ts";
import type { Resume } from "../protocol/triggers/transfer.ts";
import type { Pacer } from "./s3-body.ts";
import type { S3Target } from "./s3-client.ts";
import { runAll } from "./s3-turns.ts";

/** Destination of an object's bytes. */
export interface RangeSink {
  /** Number of contiguous bytes from the start. */
  readonly bytes: number;
  /** Rejects a size that does not fit. */
  admit(total: number): Promise<void>;
  /** Writes bytes at a position. */
  put(bytes: Uint8Array, from: number, to: number, position: number): void;
  /** Marks everything up to a position as written. */
  settle(bytes: number): void;
  /** Discards all bytes. */
  restart(): void;
}

export interface S3DownloadOptions {
  readonly target: S3Target;
  readonly sink: RangeSink;
  readonly pacer: Pacer & { bytes: number; total: number | undefined };
  readonly resume: Resume | undefined;
  /** Called once with the object's version before its bytes arrive; a later attempt needs it. */
  readonly onFound: (object: {
    readonly etag: string | undefined;
    readonly total: number;
    /** MD5 of the object in hexadecimal, if the store reports it. */
    readonly md5: string | undefined;
  }) => void;
  readonly signal: AbortSignal;
}

interface Range {
  readonly start: number;
  readonly end: number;
}

const PART_BYTES = 16 * 1024 * 1024;

/** A byte range of an object; `at` advances as bytes arrive. */
interface Part {
  at: number;
  readonly end: number;
}

interface Found {
  readonly etag: string | undefined;
  readonly total: number;
  /** Unread response of the first part. */
  readonly answer: GetObjectCommandOutput;
  readonly start: number;
}

/**
 * Downloads an object, a large one in concurrent parts. All parts are of one version, identified by the ETag.
 * @throws what {S3Target.attempt} and the sink throw; {SessionError} `source-changed` if the object was replaced meanwhile
 */
export async function downloadObject(options: S3DownloadOptions): Promise<number> {
  const { sink, pacer, target, onFound, signal } = options;
  const found = await find(options);
  const { total, start, etag } = found;
  const body = bodyOf(found.answer);
  try {
    await sink.admit(total);
    onFound({ etag, total, md5: md5In(found.answer) });
  } catch (error) {
    body.destroy();
    throw error;
  }
  pacer.total = total;
  pacer.bytes = start;
  const isWhole = found.answer.ContentRange === undefined;
  const parts: Part[] = [];
  for (let at = start; at < total; at = parts.at(-1)?.end ?? total) {
    parts.push({ at, end: isWhole ? total : Math.min(total, at + PART_BYTES) });
  }
  let low = 0;
  const onMoved = (): void => {
    while (parts[low] !== undefined && parts[low]?.at === parts[low]?.end) low += 1;
    sink.settle(parts[low]?.at ?? total);
  };
  if (parts.length === 0) body.resume();
  // Without an ETag, parts may be of different versions.
  const atATime = etag === undefined ? 1 : target.concurrency;
  await runAll(parts, atATime, signal, (part, signal) =>
    fetchPart(options, found, { part, opened: part === parts[0] ? body : undefined, onMoved }, signal),
  );
  if (sink.bytes !== total) throw new SessionError("s3-failed", `${target.name}: ${sink.bytes} of ${total} bytes came`);
  return total;
}

/** Requests the first part, which tells the object's version and size. */
async function find(options: S3DownloadOptions): Promise<Found> {
  const { target, sink, resume, signal } = options;
  const known = resume?.etag === undefined || resume.total === undefined ? undefined : resume;
  if (known === undefined) sink.restart();
  // If all bytes exist, the last one is fetched again to verify that the object is unchanged.
  const start = Math.max(0, Math.min(sink.bytes, (known?.total ?? 1) - 1));
  const ask = async (range: Range | undefined): Promise<Found> =>
    foundIn(target, await target.get(range, known?.etag, signal), range?.start ?? 0);
  try {
    const found = await target.attempt(() => ask({ start, end: start + PART_BYTES }), { signal });
    if (found.start === 0) sink.restart();
    else sink.settle(found.start);
    return found;
  } catch (error) {
    const status = error instanceof SessionError ? error.details?.["status"] : undefined;
    if (known !== undefined && (status === 412 || status === 416)) return find({ ...options, resume: undefined });
    // An empty object has no valid range (RFC 9110 §15.5.17).
    if (status === 416 && start === 0) return target.attempt(() => ask(undefined), { signal });
    throw error;
  }
}

/** Returns the range of a response. A server without range support sends the whole object. */
function foundIn(target: S3Target, answer: GetObjectCommandOutput, start: number): Found {
  const { ETag: etag, ContentLength: length, ContentRange: range } = answer;
  if (range === undefined && length !== undefined) return { etag, total: length, answer, start: 0 };
  const total = rangeIn(range)?.total;
  if (rangeIn(range)?.start === start && total !== undefined) return { etag, total, answer, start };
  bodyOf(answer).destroy();
  throw new SessionError("s3-failed", `${target.name}: S3 answered with another range than was asked for`);
}

interface Wanted {
  readonly part: Part;
  /** Response that is already open. */
  readonly opened: Readable | undefined;
  readonly onMoved: () => void;
}

async function fetchPart(options: S3DownloadOptions, found: Found, wanted: Wanted, signal: AbortSignal): Promise<void> {
  const { target, sink, pacer } = options;
  const { part, onMoved } = wanted;
  let { opened } = wanted;
  const run = async (): Promise<void> => {
    const body = opened ?? (await openPart(target, found, part, signal));
    opened = undefined;
    try {
      for await (const piece of body as AsyncIterable<Uint8Array>) {
        const count = Math.min(piece.length, part.end - part.at);
        sink.put(piece, 0, count, part.at);
        part.at += count;
        onMoved();
        pacer.add(count);
        await pacer.pause(signal);
        if (count < piece.length) throw new Error("more bytes came than were asked for");
      }
    } finally {
      body.destroy();
    }
    if (part.at < part.end) throw new Error("the answer was cut off");
  };
  await target.attempt(run, { signal, progress: () => part.at });
}

/** Requests the rest of a part, in the version found. */
async function openPart(target: S3Target, { etag, total }: Found, part: Part, signal: AbortSignal): Promise<Readable> {
  const answer = await target.get({ start: part.at, end: part.end }, etag, signal);
  const range = rangeIn(answer.ContentRange);
  const isSame = answer.ETag === etag && range?.total === total;
  if (isSame && range.start === part.at) return bodyOf(answer);
  bodyOf(answer).destroy();
  // Some servers ignore the condition.
  if (!isSame) throw new SessionError("source-changed", `${target.name}: the object was changed meanwhile`);
  throw new SessionError("s3-failed", `${target.name}: S3 answered with another range than was asked for`);
}

/**
 * Returns the MD5 of an object: its ETag, unless it was uploaded in parts or encrypted with a customer's key.
 * https://docs.aws.amazon.com/AmazonS3/latest/API/API_Object.html
 */
export function md5In({
  ETag,
  ServerSideEncryption,
  SSECustomerAlgorithm,
}: Pick<GetObjectCommandOutput, "ETag" | "ServerSideEncryption" | "SSECustomerAlgorithm">): string | undefined {
  if (ServerSideEncryption?.startsWith("aws:kms") === true || SSECustomerAlgorithm !== undefined) return undefined;
  return /^"?([0-9a-f]{32})"?$/.exec(ETag ?? "")?.[1];
}

function rangeIn(text: string | undefined): { readonly start: number; readonly total: number } | undefined {
  const [, start, total] = /^bytes (\d+)-\d+\/(\d+)$/.exec(text ?? "") ?? [];
  return start === undefined || total === undefined ? undefined : { start: Number(start), total: Number(total) };
}

function bodyOf({ Body }: GetObjectCommandOutput): Readable {
  if (Body instanceof Readable) return Body;
  throw new SessionError("s3-failed", "S3 answered without a body");
}
