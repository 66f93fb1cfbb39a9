import type { FlowRecord } from "../../protocol/documents/telemetry.ts";
import type { UsageBucket, UsageRange } from "./usage.ts";
import { emptyBuckets } from "./usage.ts";

/** How long flow records are kept, and the usage made of them; and how far a node's clock may be ahead. */
export const FLOWS_SECONDS = 30 * 24 * 3600;
export const USAGE_SECONDS = 90 * 24 * 3600;
const AHEAD_SECONDS = 24 * 3600;

/**
 * Bytes that flowed in one minute, and number of the flows that ended in it; `t` in Unix seconds. `source` is the node at the other end that tells of these
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
 * Sums up what a node tells by the minute in which bytes flowed and flows ended, and by where they came from: both ends tell of a flow through the overlay,
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

/** A flow's bytes by the minute; no more than it carried, and in no minute in which it did not run. */
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
