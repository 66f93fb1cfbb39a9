import { z } from "zod";
import { HashAlgorithm } from "./data-store.ts";

/** Addresses that a transfer may connect to. */
export const AddressPolicy = z.object({
  /** CIDRs whose loopback addresses, and addresses of this machine, are allowed. */
  allow: z.array(z.string()),
  /** Names, written as `noProxy` is, that a proxy may resolve although this machine cannot resolve and check them. */
  proxyNames: z.array(z.string()).optional(),
});
export type AddressPolicy = z.infer<typeof AddressPolicy>;

/** Bounds of one transfer; times in milliseconds, rates in bytes a second. */
export const TransferLimits = z.object({
  maxBytes: z.number(),
  /** Share of the file system that stays free: nothing is begun that would take of it, and what goes on ends at half of it. */
  reserveRatio: z.number(),
  /** Bytes left of the data store's quota for this transfer, counted by the agent; undefined without a quota. */
  quotaBytes: z.number().optional(),
  maxBytesPerSecond: z.number().optional(),
  /** Slower than this on average over a minute is given up. */
  minBytesPerSecond: z.number(),
  maxMs: z.number(),
  connectMs: z.number(),
  stallMs: z.number(),
  maxRedirects: z.int(),
  /** Requests of an object transfer at a time. */
  concurrency: z.int(),
});
export type TransferLimits = z.infer<typeof TransferLimits>;

/** State of an earlier attempt that a new one may resume. */
export const Resume = z.object({
  /** Bytes of the part file that are known to be on the disk. */
  bytes: z.number(),
  /** Strong validator of the source (RFC 9110 §8.8.3), or its last modification; without one nothing is resumed. */
  etag: z.string().optional(),
  lastModified: z.string().optional(),
  total: z.number().optional(),
  /** Upload id of a multipart upload; absent if the server holds no part of one. */
  uploadId: z.string().optional(),
  /** Set if the part file is complete and verified: `mark` identifies the file, also under its final name; `hash` is the requested one. */
  whole: z.object({ mark: z.string(), hash: z.string().optional() }).optional(),
});
export type Resume = z.infer<typeof Resume>;

/** Access to a bucket. `credentials` is a file; without it the SDK uses the role of the cloud machine. */
export const S3Access = z.object({
  endpoint: z.string().optional(),
  region: z.string().optional(),
  pathStyle: z.boolean(),
  credentials: z.string().optional(),
});
export type S3Access = z.infer<typeof S3Access>;

const Common = {
  id: z.uuid(),
  /** Absolute path of the data store's root, and the names from there to the file. */
  root: z.string(),
  parts: z.array(z.string()).min(1),
  policy: AddressPolicy,
  limits: TransferLimits,
  proxies: z.object({ https: z.string().optional(), http: z.string().optional(), noProxy: z.array(z.string()) }),
  resume: Resume.optional(),
} as const;

/** Job of a transfer: the first line of its input. */
export const TransferJob = z.discriminatedUnion("kind", [
  z.object({
    kind: z.literal("http-download"),
    ...Common,
    uri: z.string(),
    algo: HashAlgorithm.optional(),
    hash: z.string().optional(),
  }),
  z.object({ kind: z.literal("http-upload"), ...Common, uri: z.string(), multipart: z.boolean() }),
  z.object({ kind: z.literal("s3-download"), ...Common, bucket: z.string(), key: z.string(), access: S3Access }),
  z.object({ kind: z.literal("s3-upload"), ...Common, bucket: z.string(), key: z.string(), access: S3Access }),
  /** Takes back the multipart upload that `resume` names: nothing of it is left on the server. */
  z.object({ kind: z.literal("s3-abort"), ...Common, bucket: z.string(), key: z.string(), access: S3Access }),
]);
export type TransferJob = z.infer<typeof TransferJob>;

/** Events of a transfer, one JSON object a line. The end of its input ends it: the requester is gone, and written data stays. */
export const TransferEvent = z.discriminatedUnion("is", [
  /** About twice a second while bytes move. */
  z.object({ is: z.literal("progress"), bytes: z.number(), total: z.number().optional(), rate: z.number() }),
  /** State for a resumed attempt; `bytes` are synced to disk. */
  z.object({ is: z.literal("resumable"), resume: Resume }),
  /** The file is complete, synced and verified (`resume.whole`), and waits for the order to be renamed. */
  z.object({ is: z.literal("whole"), resume: Resume }),
  /** An attempt failed and another follows in so many milliseconds. */
  z.object({ is: z.literal("retry"), reason: z.string(), afterMs: z.number() }),
  z.object({ is: z.literal("done"), bytes: z.number(), hash: z.string().optional() }),
  z.object({ is: z.literal("failed"), code: z.string(), message: z.string() }),
]);
export type TransferEvent = z.infer<typeof TransferEvent>;

/** Orders of the agent after the job: stop, or publish the complete file, since its task is recorded. */
export const TransferOrder = z.object({ is: z.enum(["cancel", "publish"]) });
export type TransferOrder = z.infer<typeof TransferOrder>;

/** Name of the file that a download is written to, in the directory of its target. Paths that users give never have such names. */
export const partName = (id: string): string => `.holdfast-${id}.part`;

const OWN = /^\.holdfast-/;

/** Reports whether a name in the data store is reserved for Holdfast. */
export const isOwnName = (name: string): boolean => OWN.test(name);
