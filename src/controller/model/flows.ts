import type { FlowRecord } from "../../protocol/telemetry.ts";
import type { UsageBucket, UsageRange } from "./usage.ts";
import { emptyBuckets } from "./usage.ts";

/** How long flow records are kept, and the usage made of them; and how far a node's clock may be ahead. */
export const FLOWS_SECONDS = 30 * 24 * 3600;
export const USAGE_SECONDS = 90 * 24 * 3600;
const AHEAD_SECONDS = 24 * 3600;

/**
 * Bytes and number of the flows that ended in one minute; `t` in Unix seconds. `source` is the node at the other end that tells of these
 * flows too, empty where there is none.
 */
export interface MinuteUsage {
  readonly t: number;
  readonly source: string;
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

/**
 * Sums up what a node tells by the minute in which flows ended and by where they came from: both ends tell of a flow through the overlay,
 * and it is one. `uidOf` knows nodes by their names. Pure.
 */
export function usageOf(
  flows: readonly FlowRecord[],
  node: string,
  uidOf: (name: string) => string | undefined,
): readonly MinuteUsage[] {
  const minutes = new Map<string, { t: number; source: string; bytes: number; count: number }>();
  const sources = new Map([["local", ""]]);
  const sourceOf = (name: string): string => {
    const known = sources.get(name);
    if (known !== undefined) return known;
    const uid = uidOf(name);
    const source = uid === undefined || uid === node ? "" : uid;
    sources.set(name, source);
    return source;
  };
  for (const { sourceNode, endTime, sourceBytes, destBytes } of flows) {
    const t = Math.floor(Date.parse(endTime) / 60_000) * 60;
    const source = sourceOf(sourceNode);
    const minute = minutes.get(`${t} ${source}`) ?? { t, source, bytes: 0, count: 0 };
    minute.bytes = Math.min(minute.bytes + sourceBytes + destBytes, Number.MAX_SAFE_INTEGER);
    minute.count += 1;
    minutes.set(`${t} ${source}`, minute);
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
