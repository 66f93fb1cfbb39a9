import { z } from "zod";

/** Limit of an archive sent through the control channel, in bytes: as base64 it fits one answer. */
export const INLINE_BUNDLE_BYTES = 8 * 1024 * 1024;

/** Output of `holdfast bundle --json`. */
export const BundleReport = z.object({
  schema: z.literal(1),
  /** `-` for standard output. */
  path: z.string(),
  /** Default name of the file. */
  name: z.string().regex(/^holdfast-[\w.-]{1,255}\.tar\.gz$/),
  bytes: z.number(),
  parts: z.array(z.object({ name: z.string(), bytes: z.number(), cutBytes: z.number() })),
  missing: z.array(z.object({ name: z.string(), reason: z.string() })),
  /** The archive in base64, if it was written to standard output. */
  archive: z.base64().optional(),
});
export type BundleReport = z.infer<typeof BundleReport>;

/** The answer to `node-push-logs`. */
export const PushedLogs = z
  .object({
    name: BundleReport.shape.name,
    bytes: z.int().min(0),
    sha256: z.string().regex(/^[0-9a-f]{64}$/),
    missing: BundleReport.shape.missing.meta({ description: "What could not be had, with why; the README has it too" }),
    file: z.string().optional().meta({ description: "Where it is in the data store" }),
    archive: z.base64().optional().meta({ description: "The archive, a gzipped tar, where `inline` asked for it" }),
  })
  .meta({ id: "PushedLogs", description: "Answer to `node-push-logs`" });
export type PushedLogs = z.infer<typeof PushedLogs>;
