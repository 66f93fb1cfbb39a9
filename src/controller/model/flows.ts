import type { FlowRecord } from "../../protocol/telemetry.ts";
import type { UsageBucket, UsageRange } from "./usage.ts";
import { emptyBuckets } from "./usage.ts";

/** How long flow records are kept, and the usage made of them; and how far a node's clock may be ahead. */
export const FLOWS_SECONDS = 30 * 24 * 3600;
export const USAGE_SECONDS = 90 * 24 * 3600;
const AHEAD_SECONDS = 24 * 3600;

/** Bytes and number of the flows that ended in one minute; `t` in Unix seconds. */
export interface MinuteUsage {
  readonly t: number;
  readonly bytes: number;
  readonly count: number;
}

/** Leaves out records that ended outside the time that is kept. Pure. */
export function keptFlows(flows: readonly FlowRecord[], nowSeconds: number): readonly FlowRecord[] {
  return flows.filter(({ endTime }) => {
    const ended = Date.parse(endTime) / 1000;
    return ended > nowSeconds - FLOWS_SECONDS && ended <= nowSeconds + AHEAD_SECONDS;
  });
}

/** Sums flows up by the minute in which they ended. Pure. */
export function usageOf(flows: readonly FlowRecord[]): readonly MinuteUsage[] {
  const minutes = new Map<number, { t: number; bytes: number; count: number }>();
  for (const { endTime, sourceBytes, destBytes } of flows) {
    const t = Math.floor(Date.parse(endTime) / 60_000) * 60;
    const minute = minutes.get(t) ?? { t, bytes: 0, count: 0 };
    minute.bytes = Math.min(minute.bytes + sourceBytes + destBytes, Number.MAX_SAFE_INTEGER);
    minute.count += 1;
    minutes.set(t, minute);
  }
  return [...minutes.values()];
}

/** The buckets of a range, filled with what was counted for some of them by their place. Pure. */
export function usageBuckets(
  range: UsageRange,
  counted: readonly { readonly index: number; readonly bytes: number; readonly count: number }[],
): readonly UsageBucket[] {
  const buckets = emptyBuckets(range);
  for (const { index, bytes, count } of counted) {
    const bucket = buckets[index];
    if (bucket !== undefined) buckets[index] = { t: bucket.t, bytes, count };
  }
  return buckets;
}

/** The most records one search finds. */
export const MAX_FLOWS_FOUND = 10_000;
