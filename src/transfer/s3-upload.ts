import type { Part } from "@aws-sdk/client-s3";
import { AgentError, InputError, SessionError, toError } from "../errors.ts";
import type { Resume } from "../protocol/triggers/transfer.ts";
import { fileBody, hashOf, type Pacer, type Source } from "./s3-body.ts";
import type { S3Target } from "./s3-client.ts";
import { refusalOf } from "./s3-error.ts";
import { runAll } from "./s3-turns.ts";
import { defined } from "../lib/defined.ts";

export interface S3UploadOptions {
  readonly target: S3Target;
  readonly source: Source;
  readonly pacer: Pacer & { bytes: number; total: number | undefined };
  readonly resume: Resume | undefined;
  readonly onResumable: (resume: Resume) => void;
  /** Runs an operation that moves bytes and fails it if it stalls. */
  readonly watch: <T>(work: () => Promise<T>) => Promise<T>;
  readonly signal: AbortSignal;
}

const MIB = 1024 * 1024;
const SINGLE_BYTES = 16 * MIB;
const LEAST_PART_BYTES = 16 * MIB;
/** https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html */
const MOST_PART_BYTES = 5 * 1024 * MIB;
const MOST_PARTS = 10_000;
/** Maximum number of parts, accepted by all known servers. */
const WISHED_PARTS = 1000;
const ABORT_MS = 20_000;

interface Piece {
  readonly number: number;
  readonly from: number;
  readonly to: number;
}

/**
 * Uploads a file, a large one in concurrent parts. The multipart upload is aborted on failure or cancellation, and kept if the requester
 * is gone, so that a later attempt resumes it.
 * @throws {InputError} `too-large`; what {S3Target.attempt} throws; {InputError} `changed` if the file was modified meanwhile
 */
export async function uploadObject(options: S3UploadOptions): Promise<number> {
  const { source, pacer } = options;
  pacer.total = source.bytes;
  pacer.bytes = 0;
  if (source.bytes > MOST_PARTS * MOST_PART_BYTES) {
    throw new InputError(
      "too-large",
      `the file is larger than the ${MOST_PARTS * MOST_PART_BYTES} bytes that S3 takes`,
    );
  }
  if (source.bytes <= SINGLE_BYTES) await putWhole(options);
  else await putInParts(options);
  return source.bytes;
}

async function putWhole({ target, source, pacer, watch, signal }: S3UploadOptions): Promise<void> {
  const whole = { from: 0, to: source.bytes };
  const put = (): Promise<void> =>
    target.attempt(
      async () => {
        pacer.bytes = 0;
        const command = new target.sdk.PutObjectCommand({
          ...target.object,
          Body: await fileBody(source, whole, pacer, signal),
          ContentLength: source.bytes,
          ContentType: "application/octet-stream",
        });
        await target.client.send(command, { abortSignal: signal });
      },
      { signal },
    );
  await watch(put);
  source.verify();
}

async function putInParts(options: S3UploadOptions): Promise<void> {
  const { target, source, pacer, watch, signal, onResumable } = options;
  const found = await begun(options);
  const pieces = piecesOf(source.bytes);
  const etags = new Map<number, string>();
  const tell = (): void => onResumable({ bytes: pacer.bytes, total: source.bytes, uploadId: found.uploadId });
  tell();
  try {
    for (const piece of pieces) {
      const there = found.parts.get(piece.number);
      if (there === undefined || !(await isSame(there, source, piece, signal))) continue;
      etags.set(piece.number, there.ETag ?? "");
      pacer.bytes += piece.to - piece.from;
    }
    const missing = pieces.filter(({ number }) => !etags.has(number));
    await watch(() =>
      runAll(missing, target.concurrency, signal, async (piece, signal) => {
        etags.set(piece.number, await putPiece(options, found.uploadId, piece, signal));
        tell();
      }),
    );
    source.verify();
    const parts = pieces.map(({ number }) => ({ PartNumber: number, ETag: etags.get(number) }));
    await complete(options, found.uploadId, parts);
  } catch (error) {
    // A vanished requester is no cancellation: a restarted agent resumes.
    if (error instanceof SessionError && error.code === "left") throw error;
    const reason = toError(error);
    try {
      await abortUpload(target, found.uploadId);
    } catch (refused) {
      const text = `${reason.message}; the unfinished upload ${found.uploadId} is left: ${toError(refused).message}`;
      throw new SessionError(reason instanceof AgentError ? reason.code : "s3-failed", text, { cause: error });
    }
    onResumable({ bytes: 0, total: source.bytes });
    throw reason;
  }
}

interface Begun {
  readonly uploadId: string;
  /** Parts uploaded by an earlier attempt, by number. */
  readonly parts: ReadonlyMap<number, Part>;
}

/** Returns the upload of an earlier attempt, or starts a new one. */
async function begun({ target, resume, signal }: S3UploadOptions): Promise<Begun> {
  if (resume?.uploadId !== undefined) {
    const parts = await listParts(target, resume.uploadId, signal);
    if (parts !== undefined) return { uploadId: resume.uploadId, parts };
  }
  const command = { ...target.object, ContentType: "application/octet-stream" };
  const { UploadId } = await target.attempt(
    () => target.client.send(new target.sdk.CreateMultipartUploadCommand(command), { abortSignal: signal }),
    { signal },
  );
  if (UploadId === undefined) throw new SessionError("s3-failed", `${target.name}: S3 began no upload`);
  return { uploadId: UploadId, parts: new Map() };
}

/** Lists the parts of an upload; undefined if the upload does not exist. */
async function listParts(
  target: S3Target,
  uploadId: string,
  signal: AbortSignal,
): Promise<ReadonlyMap<number, Part> | undefined> {
  const parts = new Map<number, Part>();
  let marker: string | undefined;
  do {
    const command = {
      ...target.object,
      UploadId: uploadId,
      ...defined({ PartNumberMarker: marker }),
    };
    const page = await target.attempt(
      async () => {
        try {
          return await target.client.send(new target.sdk.ListPartsCommand(command), { abortSignal: signal });
        } catch (error) {
          if (refusalOf(error)?.code === "NoSuchUpload") return undefined;
          throw error;
        }
      },
      { signal },
    );
    if (page === undefined) return undefined;
    for (const part of page.Parts ?? []) if (part.PartNumber !== undefined) parts.set(part.PartNumber, part);
    const next = page.IsTruncated === true ? page.NextPartNumberMarker : undefined;
    marker = next === marker ? undefined : next;
  } while (marker !== undefined);
  return parts;
}

/** Reports whether a part was uploaded with the same bytes. An encrypted part's ETag is no MD5, so it is sent again. */
async function isSame(part: Part, source: Source, piece: Piece, signal: AbortSignal): Promise<boolean> {
  if (part.Size !== piece.to - piece.from) return false;
  return part.ETag?.replaceAll('"', "") === (await hashOf("md5", source, piece, signal));
}

async function putPiece(
  { target, source, pacer }: S3UploadOptions,
  uploadId: string,
  piece: Piece,
  signal: AbortSignal,
): Promise<string> {
  let sent = 0;
  const counting = {
    pause: (signal: AbortSignal) => pacer.pause(signal),
    pieceBytes: (most: number) => pacer.pieceBytes(most),
    add(bytes: number) {
      sent += bytes;
      pacer.add(bytes);
    },
  };
  const { ETag } = await target.attempt(
    async () => {
      pacer.bytes -= sent;
      sent = 0;
      const command = new target.sdk.UploadPartCommand({
        ...target.object,
        UploadId: uploadId,
        PartNumber: piece.number,
        Body: await fileBody(source, piece, counting, signal),
        ContentLength: piece.to - piece.from,
      });
      return target.client.send(command, { abortSignal: signal });
    },
    { signal },
  );
  if (ETag === undefined) throw new SessionError("s3-failed", `${target.name}: S3 gave no ETag for a part`);
  return ETag;
}

/** Completes the upload. If the response is lost, the object exists and the upload does not. */
async function complete(
  { target, source, signal }: S3UploadOptions,
  uploadId: string,
  parts: readonly Part[],
): Promise<void> {
  let isAgain = false;
  const command = { ...target.object, UploadId: uploadId, MultipartUpload: { Parts: [...parts] } };
  await target.attempt(
    async () => {
      try {
        await target.client.send(new target.sdk.CompleteMultipartUploadCommand(command), { abortSignal: signal });
      } catch (error) {
        if (!isAgain || refusalOf(error)?.code !== "NoSuchUpload") {
          isAgain = true;
          throw error;
        }
        const there = await target.client.send(new target.sdk.HeadObjectCommand(target.object), {
          abortSignal: signal,
        });
        const isOurs = there.ContentLength === source.bytes && there.ETag?.endsWith(`-${parts.length}"`) === true;
        if (!isOurs) throw error;
      }
    },
    { signal },
  );
}

/** Aborts an upload, so that no storage is billed; succeeds if it does not exist. @throws errors of {S3Target.attempt} */
export async function abortUpload(target: S3Target, uploadId: string): Promise<void> {
  const signal = AbortSignal.timeout(ABORT_MS);
  const command = { ...target.object, UploadId: uploadId };
  await target.attempt(
    async () => {
      try {
        await target.client.send(new target.sdk.AbortMultipartUploadCommand(command), { abortSignal: signal });
      } catch (refused) {
        if (refusalOf(refused)?.code !== "NoSuchUpload") throw refused;
      }
    },
    { signal },
  );
}

/** Splits a file into equal parts. The split depends only on the file's size, so a later attempt gets the same parts. */
function piecesOf(bytes: number): readonly Piece[] {
  const wished = Math.ceil(bytes / WISHED_PARTS / MIB) * MIB;
  const size = Math.min(MOST_PART_BYTES, Math.max(LEAST_PART_BYTES, wished));
  return Array.from({ length: Math.ceil(bytes / size) }, (_, index) => ({
    number: index + 1,
    from: index * size,
    to: Math.min(bytes, (index + 1) * size),
  }));
}
