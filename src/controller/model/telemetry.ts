import type { z } from "zod";
import { describeIssues } from "../../protocol/channel/envelope.ts";
import type { MetricSample } from "../../protocol/documents/telemetry.ts";
import type { JsonObject } from "../../protocol/values/values.ts";

/** Largest single record as JSON; the frame bounds the batch. */
export const RECORD_MAX_BYTES = 32 * 1024;

/** How long metrics are kept, and how far a node's clock may be ahead. */
export const METRICS_SECONDS = 90 * 24 * 3600;
const AHEAD_SECONDS = 24 * 3600;

/** What of a push is new, and how far the stream is acknowledged after it. Pure. */
export function newRecords(
  acknowledged: number,
  push: { readonly first: number; readonly records: readonly JsonObject[] },
): { readonly records: readonly JsonObject[]; readonly last: number } {
  const end = push.first + push.records.length - 1;
  const known = Math.max(0, Math.min(push.records.length, acknowledged - push.first + 1));
  return { records: push.records.slice(known), last: Math.max(acknowledged, end) };
}

/** Separates records of a stream's form, without unknown fields, from the others, of which only the first has a reason. Pure. */
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

/** Puts samples on their minutes and leaves out those from outside the time that is kept, so that a node has only so many. Pure. */
export function keptSamples(samples: readonly MetricSample[], nowSeconds: number): readonly MetricSample[] {
  return samples
    .filter(({ t }) => t > nowSeconds - METRICS_SECONDS && t <= nowSeconds + AHEAD_SECONDS)
    .map(({ t, m }) => ({ t: t - (t % 60), m }));
}
