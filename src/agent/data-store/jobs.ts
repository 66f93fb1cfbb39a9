import type { ProxySettings } from "../../lib/net/proxy.ts";
import { parseS3Uri } from "../../protocol/triggers/data-store.ts";
import type { S3Access, TransferJob, TransferLimits } from "../../protocol/triggers/transfer.ts";
import { InputError } from "../../errors.ts";
import type { Task, TransferRequest } from "./tasks.ts";

/** Local settings of transfers. */
export interface JobSettings {
  /** Quota of all files in bytes; undefined without one. */
  readonly maxBytes: number | undefined;
  /** Share of the file system that stays free. */
  readonly reserveRatio: number;
  readonly maxTransfers: number;
  /** Limit of all transfers together. */
  readonly maxBytesPerSecond: number | undefined;
  /** Requests of an object transfer at a time. */
  readonly maxRequests: number;
  /** CIDRs that may be connected to although they are private or loopback. */
  readonly allowAddresses: readonly string[];
  /** Names that a proxy may resolve although this machine cannot check their addresses, written as `noProxy` is. */
  readonly proxyNames: readonly string[];
  /** Access to the buckets of a name, or of any name (`*`). */
  readonly buckets: readonly (S3Access & { readonly bucket: string })[];
  readonly proxies: ProxySettings;
}

export interface JobPlace {
  readonly root: string;
  readonly parts: readonly string[];
  readonly quotaBytes: number | undefined;
  readonly settings: JobSettings;
}

const DAY_MS = 86_400_000;
const SLOWEST = 1024;

/** Builds the job of a transfer process for a request. @throws {InputError} `invalid-body` for an address that cannot be one. Pure. */
export function jobFor(
  { id, resume }: Pick<Task, "id" | "resume">,
  request: TransferRequest,
  place: JobPlace,
): TransferJob {
  const { root, parts, settings } = place;
  const { proxies } = settings;
  const common = {
    id,
    root,
    parts: [...parts],
    policy: { allow: [...settings.allowAddresses], proxyNames: [...settings.proxyNames] },
    limits: limitsOf(place),
    proxies: {
      ...(proxies.https === undefined ? {} : { https: proxies.https.href }),
      ...(proxies.http === undefined ? {} : { http: proxies.http.href }),
      noProxy: [...proxies.noProxy],
    },
    resume,
  };
  switch (request.action) {
    case "HTTP_DOWNLOAD": {
      const { uri, hash, algo } = request;
      return { kind: "http-download", ...common, uri, algo, hash };
    }
    case "HTTP_UPLOAD":
      return { kind: "http-upload", ...common, uri: request.uri, multipart: request.multipart };
    case "S3_DOWNLOAD":
      return { kind: "s3-download", ...common, ...objectOf(request.uri, "uri", settings) };
    case "S3_UPLOAD":
      return { kind: "s3-upload", ...common, ...objectOf(request.bucketDest, "bucketDest", settings) };
  }
}

/** Builds the job that aborts a request's upload; undefined if the request starts none. Pure. */
export function abortJobFor(
  task: Pick<Task, "id" | "resume" | "path">,
  request: TransferRequest,
  place: Omit<JobPlace, "parts" | "quotaBytes">,
): TransferJob | undefined {
  if (request.action !== "S3_UPLOAD" || task.resume?.uploadId === undefined) return undefined;
  const job = jobFor(task, request, { ...place, parts: task.path.split("/"), quotaBytes: undefined });
  return job.kind === "s3-upload" ? { ...job, kind: "s3-abort" } : undefined;
}

/** Returns the object's location and access: the bucket's own entry, else the entry `*`, else the cloud's defaults. */
function objectOf(uri: string, field: string, { buckets }: JobSettings) {
  const object = parseS3Uri(uri);
  if (object === undefined) throw new InputError("invalid-body", `${field}: must be s3://<bucket>/<key>`);
  const entry = buckets.find(({ bucket }) => bucket === object.bucket) ?? buckets.find(({ bucket }) => bucket === "*");
  const { bucket: _, ...access } = entry ?? { bucket: "*", pathStyle: false };
  return { ...object, access };
}

function limitsOf({ quotaBytes, settings }: JobPlace): TransferLimits {
  const share =
    settings.maxBytesPerSecond === undefined ? undefined : settings.maxBytesPerSecond / settings.maxTransfers;
  return {
    // The disk is the only limit.
    maxBytes: Number.MAX_SAFE_INTEGER,
    reserveRatio: settings.reserveRatio,
    quotaBytes,
    maxBytesPerSecond: share,
    // A transfer limited to a lower rate does not fail for being slow.
    minBytesPerSecond: Math.min(SLOWEST, (share ?? Infinity) / 4),
    maxMs: 7 * DAY_MS,
    connectMs: 30_000,
    stallMs: 60_000,
    maxRedirects: 5,
    concurrency: settings.maxRequests,
  };
}
