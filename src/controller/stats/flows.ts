import type { FlowRecord } from "../../protocol/documents/telemetry.ts";
import type { UsageBucket, UsageRange } from "./usage.ts";
import { emptyBuckets } from "./usage.ts";

/** Retention of flow records and of usage, and the allowed lead of a node's clock, in seconds. */
export const FLOWS_SECONDS = 30 * 24 * 3600;
export const USAGE_SECONDS = 90 * 24 * 3600;
const AHEAD_SECONDS = 24 * 3600;

/**
 * Traffic of one minute: bytes, number of ended flows, and the minute `t` in Unix seconds. `source` is the UID of the peer that also
 * reports these flows, or empty.
 */
export interface MinuteUsage {
  readonly t: number;
  readonly source: string;
  readonly bytes: number;
  readonly count: number;
}

/** Drops records of flows that ended outside the retention period. Pure. */
export function keptFlows(flows: readonly FlowRecord[], nowSeconds: number): readonly FlowRecord[] {
  return flows.filter(({ endTime }) => {
    const ended = Date.parse(endTime) / 1000;
    return ended > nowSeconds - FLOWS_SECONDS && ended <= nowSeconds + AHEAD_SECONDS;
  });
}

/**
 * Sums a node's flow records by minute and source. Both ends report a flow through the overlay; the source makes it count once. `uidOf`
 * maps node names to UIDs. Pure.
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
  const add = (t: number, source: string, bytes: number, count: number): void => {
    const minute = minutes.get(`${t} ${source}`) ?? { t, source, bytes: 0, count: 0 };
    minute.bytes = Math.min(minute.bytes + bytes, Number.MAX_SAFE_INTEGER);
    minute.count += count;
    minutes.set(`${t} ${source}`, minute);
  };
  for (const flow of flows) {
    const ended = minuteOf(flow.endTime);
    const source = sourceOf(flow.sourceNode);
    const isInterim = flow.meta?.["interim"] === true;
    if (!isInterim) add(ended, source, 0, 1);
    for (const [t, bytes] of spreadOf(flow, ended)) add(t, source, bytes, 0);
  }
  return [...minutes.values()];
}

/** Distributes a flow's bytes over minutes; never more bytes than the flow's total, nor minutes outside its duration. */
function spreadOf(
  { usage, startTime, sourceBytes, destBytes }: FlowRecord,
  ended: number,
): readonly (readonly [number, number])[] {
  const started = minuteOf(startTime);
  let left = sourceBytes + destBytes;
  if (usage === undefined) return [[ended, left]];
  return usage.flatMap(({ t: second, bytes }) => {
    const t = Math.min(Math.max(Math.floor(second / 60) * 60, started), ended);
    const counted = Math.min(bytes, left);
    left -= counted;
    return counted === 0 ? [] : [[t, counted]];
  });
}

function minuteOf(time: string): number {
  return Math.floor(Date.parse(time) / 60_000) * 60;
}

/** Returns all buckets of a range, filled with the counts given by bucket index. Pure. */
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

/** Limit of records in one search result. */
export const MAX_FLOWS_FOUND = 10_000;
