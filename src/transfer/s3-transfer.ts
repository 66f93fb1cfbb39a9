import { InputError, toError, SessionError } from "../errors.ts";
import type { StorePart } from "../host/data-store/store.ts";
import { lengthOf } from "../host/files/open-bytes.ts";
import type { Resume, TransferEvent, TransferJob } from "../protocol/triggers/transfer.ts";
import { Meter } from "./meter.ts";
import { hashOf, type Pacer } from "./s3-body.ts";
import { S3Target } from "./s3-client.ts";
import { downloadObject } from "./s3-download.ts";
import { abortUpload, uploadObject } from "./s3-upload.ts";
import { Sink } from "./sink.ts";
import { announceWhole, doneWith, isWhole, publishedBefore } from "./whole.ts";
import type { TransferDeps } from "./deps.ts";

export type S3Download = Extract<TransferJob, { kind: "s3-download" }>;
export type S3Upload = Extract<TransferJob, { kind: "s3-upload" }>;
export type S3Abort = Extract<TransferJob, { kind: "s3-abort" }>;

/**
 * Downloads an object into the store. The part file is removed on failure and kept if the requester is gone.
 * @throws what {downloadObject}, {S3Target.open} and the store throw; {SessionError} `hash-mismatch`, `stalled`, `too-slow`,
 *   `too-long`, `cancelled`, `left`
 */
export async function s3Download(job: S3Download, deps: TransferDeps, signal: AbortSignal): Promise<TransferEvent> {
  const { store, clock, emit } = deps;
  const { whole, ...source } = job.resume ?? { bytes: 0 };
  const kept = source.etag === undefined && whole === undefined ? 0 : source.bytes;
  const before = await publishedBefore(job, store);
  if (before !== undefined) return before;
  return within(job, deps, signal, async (meter, fail, signal) => {
    const part = store.openPart(job.parts.join("/"), job.id, kept);
    let found: Omit<Resume, "bytes"> | undefined;
    let md5: string | undefined;
    const sink = new Sink({
      part,
      space: () => store.space(),
      limits: job.limits,
      clock,
      algo: undefined,
      onSynced: (bytes) => {
        if (found !== undefined) emit({ is: "resumable", resume: { ...found, bytes } });
      },
      fail,
    });
    let isOver = false;
    const fetched = (): Promise<number> =>
      withTarget(job, deps, signal, (target) =>
        watched(meter, fail, () =>
          downloadObject({
            target,
            sink,
            pacer: pacerOf(meter, deps),
            // A part that was complete and has changed cannot be trusted.
            resume: whole === undefined ? job.resume : undefined,
            onFound: ({ etag, total, ...object }) => {
              ({ md5 } = object);
              found = etag === undefined ? undefined : { etag, total };
              sink.isResumable = found !== undefined;
            },
            signal,
          }),
        ),
      );
    try {
      const bytes = (await isWhole(part, job.resume)) ? source.bytes : await fetched();
      sink.close();
      signal.throwIfAborted();
      if (md5 !== undefined) await verify(part, bytes, md5, signal);
      await announceWhole(part, { ...source, ...found, bytes }, undefined, deps, signal);
      isOver = true;
      await part.publish();
      return doneWith(bytes, undefined);
    } catch (error) {
      sink.close();
      const reason = signal.aborted ? toError(signal.reason) : error;
      if (reason instanceof SessionError && reason.code === "left") part.keep();
      else if (!isOver) part.discard();
      throw reason;
    }
  });
}

/** @throws {SessionError} `hash-mismatch` if the bytes differ from the object's */
async function verify(part: StorePart, bytes: number, md5: string, signal: AbortSignal): Promise<void> {
  const source = { fd: part.fd, bytes, verify: () => undefined };
  const hash = await hashOf("md5", source, { from: 0, to: bytes }, signal);
  if (hash === md5) return;
  throw new SessionError("hash-mismatch", `the MD5 of the download is ${hash}, and that of the object ${md5}`);
}

/**
 * Uploads a file of the store.
 * @throws what {uploadObject}, {S3Target.open} and the store throw; {SessionError} `stalled`, `too-slow`, `too-long`, `cancelled`, `left`
 */
export async function s3Upload(job: S3Upload, deps: TransferDeps, signal: AbortSignal): Promise<TransferEvent> {
  const { store, emit } = deps;
  return within(job, deps, signal, async (meter, fail, signal) => {
    const file = store.open(job.parts.join("/"));
    const verify = (): void => {
      if (lengthOf(file.fd) !== file.bytes)
        throw new InputError("changed", "the file changed in length while it was sent");
    };
    try {
      const bytes = await withTarget(job, deps, signal, (target) =>
        uploadObject({
          target,
          source: { fd: file.fd, bytes: file.bytes, verify },
          pacer: pacerOf(meter, deps),
          resume: job.resume,
          watch: (work) => watched(meter, fail, work),
          onResumable: (resume) => emit({ is: "resumable", resume }),
          signal,
        }),
      );
      return { is: "done", bytes };
    } finally {
      file.close();
    }
  });
}

/**
 * Aborts the upload of an earlier attempt.
 * @throws what {abortUpload} and {S3Target.open} throw; {InputError} `bad-job` if the job names none
 */
export async function s3Abort(job: S3Abort, deps: TransferDeps, signal: AbortSignal): Promise<TransferEvent> {
  const uploadId = job.resume?.uploadId;
  if (uploadId === undefined) throw new InputError("bad-job", "the job's resume.uploadId: is missing");
  await withTarget(job, deps, signal, (target) => abortUpload(target, uploadId));
  return { is: "done", bytes: 0 };
}

type Job = S3Download | S3Upload;

/** Runs `work` within its time limits and reports its progress. */
async function within(
  job: Job,
  { clock, emit }: TransferDeps,
  signal: AbortSignal,
  work: (meter: Meter, fail: (error: Error) => void, signal: AbortSignal) => Promise<TransferEvent>,
): Promise<TransferEvent> {
  const ending = new AbortController();
  const fail = (error: Error): void => ending.abort(error);
  const meter = new Meter({ clock, limits: job.limits, emit });
  const stopLimit = meter.limit(fail);
  try {
    return await work(meter, fail, AbortSignal.any([signal, ending.signal]));
  } finally {
    stopLimit();
  }
}

async function withTarget<T>(
  job: Job | S3Abort,
  { connector, clock, emit, random }: TransferDeps,
  signal: AbortSignal,
  work: (target: S3Target) => Promise<T>,
): Promise<T> {
  const target = await S3Target.open({
    object: { bucket: job.bucket, key: job.key },
    access: job.access,
    limits: job.limits,
    connect: async (where, signal) => (await connector.connect({ ...where, isTunnelled: true }, signal)).connection,
    clock,
    emit,
    random,
    signal,
  });
  try {
    return await work(target);
  } finally {
    target.close();
  }
}

async function watched<T>(meter: Meter, fail: (error: Error) => void, work: () => Promise<T>): Promise<T> {
  const stop = meter.watch(fail);
  try {
    return await work();
  } finally {
    stop();
  }
}

/** Returns the meter as a pacer. */
function pacerOf(meter: Meter, { clock }: TransferDeps): Pacer & Pick<Meter, "bytes" | "total"> {
  return {
    get bytes() {
      return meter.bytes;
    },
    set bytes(bytes) {
      meter.bytes = bytes;
    },
    get total() {
      return meter.total;
    },
    set total(total) {
      meter.total = total;
    },
    add: (bytes) => meter.add(bytes),
    pieceBytes: (most) => meter.pieceBytes(most),
    async pause(signal) {
      signal.throwIfAborted();
      const ms = meter.waitMs();
      if (ms >= 1) await clock.sleep(ms, signal);
    },
  };
}
