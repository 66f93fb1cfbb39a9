import type { z } from "zod";
import { describeIssues } from "../../protocol/channel/envelope.ts";
import type { MetricSample } from "../../protocol/documents/telemetry.ts";
import type { JsonObject } from "../../protocol/values/values.ts";

/** Limit of one record as JSON, in bytes; the frame limits the batch. */
const RECORD_MAX_BYTES = 32 * 1024;

/** Retention of metrics, and the allowed lead of a node's clock, in seconds. */
export const METRICS_SECONDS = 90 * 24 * 3600;
const AHEAD_SECONDS = 24 * 3600;

/** Returns the records of a push that are new, and the sequence number to acknowledge. Pure. */
export function newRecords(
  acknowledged: number,
  push: { readonly first: number; readonly records: readonly JsonObject[] },
): { readonly records: readonly JsonObject[]; readonly last: number } {
  const end = push.first + push.records.length - 1;
  const known = Math.max(0, Math.min(push.records.length, acknowledged - push.first + 1));
  return { records: push.records.slice(known), last: Math.max(acknowledged, end) };
}

/** Separates valid records from invalid ones and removes unknown fields. Only the first invalid record gets a reason. Pure. */
export function sortRecords<T>(
  schema: z.ZodType<T>,
  records: readonly JsonObject[],
): { readonly good: readonly T[]; readonly bad: readonly string[] } {
  const good: T[] = [];
  const bad: string[] = [];
  for (const record of records) {
    const parsed = schema.safeParse(record);
    if (!parsed.success) bad.push(bad.length > 0 ? "" : describeIssues(parsed.error).join("; ").slice(0, 512));
    else if (Buffer.byteLength(JSON.stringify(parsed.data)) > RECORD_MAX_BYTES) bad.push("larger than 32 KiB");
    else good.push(parsed.data);
  }
  return { good, bad };
}

/** Aligns samples to minutes and drops those outside the retention period, which limits the samples per node. Pure. */
export function keptSamples(samples: readonly MetricSample[], nowSeconds: number): readonly MetricSample[] {
  return samples
    .filter(({ t }) => t > nowSeconds - METRICS_SECONDS && t <= nowSeconds + AHEAD_SECONDS)
    .map(({ t, m }) => ({ t: t - (t % 60), m }));
}
