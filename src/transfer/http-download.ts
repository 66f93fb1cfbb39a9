import type { IncomingHttpHeaders } from "node:http";
import { InputError, SessionError, toError } from "../errors.ts";
import type { Store } from "../host/data-store/store.ts";
import type { Resume, TransferEvent, TransferJob } from "../protocol/triggers/transfer.ts";
import { inAttempts } from "./attempts.ts";
import { framedByChunks, framedByEnd, framedByLength, type Framing } from "./body.ts";
import { ask, statusError, type Answer } from "./http-source.ts";
import { Meter } from "./meter.ts";
import { Sink } from "./sink.ts";
import { announceWhole, doneWith, isWhole, publishedBefore } from "./whole.ts";
import type { TransferDeps } from "./deps.ts";

export type HttpDownload = Extract<TransferJob, { kind: "http-download" }>;

/** Read buffer: large enough for a fast network, small enough for the processor's cache. */
const BUFFER_BYTES = 256 * 1024;

/**
 * Downloads one file into the store and resolves to its final event. The part file is removed on failure and kept if the requester is
 * gone.
 * @throws {InputError} `refused`, `bad-redirect`, `forbidden-address`, `bad-encoding`, `hash-mismatch`, `too-large`, `quota-exceeded`;
 *   {HostError} `disk-full`, `storage-failed`; {SessionError} `bad-answer`, `too-slow`, `too-long`, `cancelled`, `left`, and
 *   transient errors that did not pass.
 */
export async function httpDownload(job: HttpDownload, deps: TransferDeps, signal: AbortSignal): Promise<TransferEvent> {
  const { clock, store, emit } = deps;
  const ending = new AbortController();
  const overall = AbortSignal.any([signal, ending.signal]);
  const fail = (error: Error): void => ending.abort(error);
  const before = await publishedBefore(job, store);
  if (before !== undefined) return before;
  const part = store.openPart(job.parts.join("/"), job.id, isOfUse(job.resume) ? (job.resume?.bytes ?? 0) : 0);
  const algo = job.algo ?? (job.hash === undefined ? undefined : "SHA-256");
  const meter = new Meter({ clock, limits: job.limits, emit });
  const { whole, ...source } = job.resume ?? { bytes: 0 };
  // A part that was complete and has changed cannot be trusted.
  let validator = part.bytes > 0 && whole === undefined ? source : undefined;
  const onSynced = (bytes: number): void => {
    if (validator !== undefined) emit({ is: "resumable", resume: { ...validator, bytes } });
  };
  const space = (): ReturnType<Store["space"]> => store.space();
  const sink = new Sink({ part, space, limits: job.limits, clock, algo, onSynced, fail });
  const stopLimit = meter.limit(fail);
  let isOver = false;
  try {
    let takesRanges = true;
    const hash = (await isWhole(part, job.resume)) ? whole?.hash : await fetched();
    sink.close();
    await announceWhole(part, { ...source, ...validator, bytes: sink.bytes }, hash, deps, overall);
    isOver = true;
    await part.publish();
    return doneWith(sink.bytes, hash);

    /** Fetches and verifies the whole file. Returns its hash, if one was requested. */
    async function fetched(): Promise<string | undefined> {
      sink.isResumable = validator !== undefined;
      await sink.rehash(overall);
      await inAttempts(
        async () => {
          while (!(await attempt())) takesRanges = false;
        },
        deps,
        overall,
      );
      sink.close();
      overall.throwIfAborted();
      const hash = sink.digest();
      if (job.hash === undefined || hash === job.hash.toLowerCase()) return hash;
      throw new InputError("hash-mismatch", `the file's ${algo} is ${hash ?? "unknown"} instead of ${job.hash}`);
    }

    /** Returns false if the download cannot be resumed and must start over. */
    async function attempt(): Promise<boolean> {
      if (sink.bytes > 0 && (!takesRanges || validator === undefined)) sink.restart();
      const range = sink.bytes > 0 && validator !== undefined ? rangeHeaders(sink.bytes, validator) : {};
      const isRanged = sink.bytes > 0;
      const answer = await ask(
        new URL(job.uri),
        {
          connector: deps.connector,
          headers: { accept: "*/*", "accept-encoding": "identity", ...range },
          maxRedirects: job.limits.maxRedirects,
          waitMs: job.limits.stallMs,
          bufferBytes: meter.pieceBytes(BUFFER_BYTES),
        },
        overall,
      );
      try {
        const { status, headers } = answer;
        if (isRanged && status === 416) return false;
        if (status !== 200 && !(isRanged && status === 206)) throw statusError(answer, clock.now());
        judgeEncoding(headers);
        const framing = framingOf(headers);
        const start = status === 206 ? sink.bytes : 0;
        const total = status === 206 ? totalOfRange(headers, start, validator) : lengthOf(headers);
        if (total === "wrong") return false;
        if (total === undefined) judgeEnd(framing, job.hash);
        if (sink.bytes > start) sink.restart();
        if (status === 200) validator = validatorOf(headers, total);
        sink.isResumable = validator !== undefined;
        await sink.admit(total);
        meter.bytes = sink.bytes;
        meter.total = total;
        await receive(answer, framing, { sink, meter }, overall);
        if (total === undefined || sink.bytes === total) return true;
        throw new SessionError("bad-length", `${sink.bytes} bytes came instead of ${total}`);
      } catch (error) {
        // A body longer than announced cannot be trusted.
        if (error instanceof SessionError && error.code === "bad-length") sink.restart();
        throw error;
      } finally {
        answer.stream.destroy();
      }
    }
  } catch (error) {
    sink.close();
    const reason = overall.aborted ? toError(overall.reason) : error;
    if (reason instanceof SessionError && reason.code === "left") part.keep();
    else if (!isOver) part.discard();
    throw reason;
  } finally {
    stopLimit();
  }
}

interface Receiving {
  readonly sink: Sink;
  readonly meter: Meter;
}

/** Writes a body to the sink until its end. */
function receive({ stream, rest }: Answer, framing: Framing, to: Receiving, signal: AbortSignal): Promise<void> {
  const { sink, meter } = to;
  return new Promise((resolve, reject) => {
    let isOver = false;
    let pause: ReturnType<typeof setTimeout> | undefined;
    const stopWatch = meter.watch((error) => finish(error));
    const abort = (): void => finish(toError(signal.reason));
    function finish(error?: Error): void {
      if (isOver) return;
      isOver = true;
      stopWatch();
      clearTimeout(pause);
      signal.removeEventListener("abort", abort);
      if (error === undefined) resolve();
      else reject(error);
    }
    const take = (bytes: Buffer, from: number, until: number): void => {
      sink.append(bytes, from, until);
      meter.add(until - from);
    };
    const feed = (bytes: Buffer, length: number): boolean => {
      if (isOver) return false;
      try {
        if (framing.feed(bytes, length, take)) {
          finish();
          return false;
        }
      } catch (error) {
        finish(toError(error));
        return false;
      }
      const waitMs = meter.waitMs();
      if (waitMs < 1) return true;
      pause = setTimeout(() => stream.resume(), waitMs);
      return false;
    };
    if (signal.aborted) return abort();
    signal.addEventListener("abort", abort, { once: true });
    void stream.ended.then((error) => {
      if (error === undefined && framing.endsWithConnection) return finish();
      return finish(new SessionError("cut-off", error?.message ?? "the connection ended before the file did"));
    });
    // An empty body ends at once.
    if (!feed(rest, rest.length) && (isOver || pause === undefined)) return;
    if (pause === undefined) stream.read(feed);
    else stream.expect(feed);
  });
}

function framingOf(headers: IncomingHttpHeaders): Framing {
  const coding = headers["transfer-encoding"];
  if (coding !== undefined) {
    if (coding.trim().toLowerCase() === "chunked") return framedByChunks();
    throw new InputError("bad-encoding", "the answer has a transfer coding other than chunked");
  }
  const length = lengthOf(headers);
  return length === undefined ? framedByEnd : framedByLength(length);
}

/** Rejects a body framed by the end of the connection, which may be truncated (RFC 9112 §8), unless a hash verifies it. */
function judgeEnd({ endsWithConnection }: Framing, hash: string | undefined): void {
  if (!endsWithConnection || hash !== undefined) return;
  const why = "a file that was cut off would be taken for a whole one; with the hash it has to have it can be fetched";
  throw new InputError("bad-answer", `the answer does not say how long the file is: ${why}`);
}

/** Returns the announced length of the body; Node's parser has rejected conflicting ones. */
function lengthOf(headers: IncomingHttpHeaders): number | undefined {
  const text = headers["content-length"];
  if (text === undefined || headers["transfer-encoding"] !== undefined) return undefined;
  const length = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
  if (Number.isSafeInteger(length)) return length;
  throw new SessionError("bad-answer", "the answer's Content-Length is not a length");
}

/** Rejects content codings, which were not requested: a small body could expand without limit. */
function judgeEncoding(headers: IncomingHttpHeaders): void {
  const coding = headers["content-encoding"] ?? "identity";
  if (/^\s*(?:identity)?\s*$/i.test(coding)) return;
  throw new InputError("bad-encoding", "the answer is compressed although that was not asked for");
}

/** Returns the headers that resume a download; if the validator is stale, the server sends the whole file (RFC 9110 §13.1.5). */
function rangeHeaders(start: number, { etag, lastModified }: Resume): Readonly<Record<string, string>> {
  return { range: `bytes=${start}-`, "if-range": etag ?? lastModified ?? "" };
}

/** Returns the size of the whole file if the range is exactly from `start` to the end (RFC 9110 §14.4). */
function totalOfRange(headers: IncomingHttpHeaders, start: number, expected: Resume | undefined): number | "wrong" {
  const [, first, last, total] =
    /^bytes (\d{1,15})-(\d{1,15})\/(\d{1,15})$/i.exec(headers["content-range"] ?? "") ?? [];
  const fits =
    Number(first) === start &&
    Number(last) + 1 === Number(total) &&
    (expected?.total === undefined || expected.total === Number(total)) &&
    (expected?.etag === undefined || headers.etag === undefined || headers.etag === expected.etag);
  const length = lengthOf(headers);
  return fits && (length === undefined || length === Number(total) - start) ? Number(total) : "wrong";
}

const isOfUse = (resume: Resume | undefined): boolean =>
  resume?.etag !== undefined || resume?.lastModified !== undefined || resume?.whole !== undefined;

/** Returns the strong validator of a response (RFC 9110 §8.8): a strong ETag, or a modification at least a second before the response. */
function validatorOf(headers: IncomingHttpHeaders, total: number | undefined): Resume | undefined {
  const { etag, "last-modified": lastModified = "", date = "" } = headers;
  const size = total === undefined ? {} : { total };
  if (etag !== undefined && /^"[\x21\x23-\x7e\x80-\xff]*"$/.test(etag)) return { bytes: 0, etag, ...size };
  return Date.parse(date) - Date.parse(lastModified) >= 1000 ? { bytes: 0, lastModified, ...size } : undefined;
}
