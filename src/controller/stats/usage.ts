import { InputError } from "../../errors.ts";

/** Time range in Unix seconds, the end exclusive, divided into buckets. */
export interface UsageRange {
  readonly from: number;
  readonly to: number;
  readonly bucketSeconds: number;
}

/** Traffic of one bucket: bytes, number of flows, and the start in Unix seconds. */
export interface UsageBucket {
  readonly bytes: number;
  readonly count: number;
  readonly t: number;
}

/** Range parameters of a query; times are absolute (Unix seconds) or relative (`now`, `-7 days`). */
export interface UsageQuery {
  readonly start?: number | undefined;
  readonly end?: number | undefined;
  readonly relative_start?: string | undefined;
  readonly relative_end?: string | undefined;
  readonly intervalInMinutes: number;
}

const MAX_BUCKETS = 10_000;
/** `now`, or a signed amount and a unit. */
export const RELATIVE_TIME = /^(?:now|([+-]?\d{1,6}) ?(second|minute|hour|day|week|month|year)s?)$/;

const SECONDS: Readonly<Record<string, number>> = {
  second: 1,
  minute: 60,
  hour: 3600,
  day: 86_400,
  week: 7 * 86_400,
  month: 30 * 86_400,
  year: 365 * 86_400,
};

/**
 * Returns the requested range; the last 24 hours by default.
 * @throws {InputError} `invalid-query` if the range is empty, given twice, or has more than 10,000 buckets
 */
export function usageRange(query: UsageQuery, nowSeconds: number): UsageRange {
  const from = instant("start", query.start, query.relative_start, nowSeconds) ?? nowSeconds - 86_400;
  const to = instant("end", query.end, query.relative_end, nowSeconds) ?? nowSeconds;
  const bucketSeconds = query.intervalInMinutes * 60;
  if (from < 0) throw new InputError("invalid-query", "start: before 1970");
  if (from >= to) throw new InputError("invalid-query", "start: must be before the end");
  const range = { from: Math.floor(from / bucketSeconds) * bucketSeconds, to, bucketSeconds };
  if (Math.ceil((range.to - range.from) / bucketSeconds) > MAX_BUCKETS) {
    throw new InputError("invalid-query", `intervalInMinutes: the range holds more than ${MAX_BUCKETS} buckets`);
  }
  return range;
}

function instant(name: string, absolute: number | undefined, relative: string | undefined, now: number) {
  if (relative === undefined) return absolute;
  if (absolute !== undefined) throw new InputError("invalid-query", `${name}: give it or relative_${name}, not both`);
  const parts = RELATIVE_TIME.exec(relative);
  if (parts === null) throw new InputError("invalid-query", `relative_${name}: must be like 'now' or '-7 days'`);
  return now + Number(parts[1] ?? 0) * (SECONDS[parts[2] ?? ""] ?? 0);
}

/** Returns the empty buckets of a range, in order. */
export function emptyBuckets(range: UsageRange): UsageBucket[] {
  const count = Math.ceil((range.to - range.from) / range.bucketSeconds);
  return Array.from({ length: count }, (_, index) => ({
    bytes: 0,
    count: 0,
    t: range.from + index * range.bucketSeconds,
  }));
}
