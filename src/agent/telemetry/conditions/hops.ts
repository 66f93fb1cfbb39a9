import { isIP } from "node:net";
import { z } from "zod";
import { Text253 } from "../../../protocol/values/values.ts";

/** Answers of one hop, in one run or all runs of a minute. Milliseconds. */
export interface Hop {
  readonly hop: number;
  readonly ip: string;
  readonly minRtt: number;
  readonly maxRtt: number;
  readonly meanRtt: number;
  /** Number of answered probes. */
  readonly numRtt: number;
}

const Quantity = z.union([z.number(), z.string().transform(Number)]).pipe(z.number().min(0));
const Hub = z.looseObject({
  count: Quantity,
  host: Text253,
  "Loss%": Quantity,
  Snt: Quantity,
  Avg: Quantity,
  Best: Quantity,
  Wrst: Quantity,
});
const Report = z.looseObject({ report: z.looseObject({ hubs: z.array(z.unknown()).max(256) }) });

const MAX_HOPS = 64;

/** Parses a report of mtr(8) with --json without silent hops; undefined if it is none. Pure. */
export function parseHops(text: string): readonly Hop[] | undefined {
  let raw: unknown;
  try {
    raw = JSON.parse(text);
  } catch {
    return undefined;
  }
  const parsed = Report.safeParse(raw);
  if (!parsed.success) return undefined;
  return parsed.data.report.hubs.slice(0, MAX_HOPS).flatMap((entry): Hop[] => {
    const hub = Hub.safeParse(entry);
    if (!hub.success || isIP(hub.data.host) === 0) return [];
    const { count, host, Snt, Avg, Best, Wrst } = hub.data;
    const numRtt = Math.round(Snt * (1 - Math.min(100, hub.data["Loss%"]) / 100));
    if (numRtt === 0 || !Number.isInteger(count) || count < 1) return [];
    return [{ hop: count, ip: host, minRtt: Best, maxRtt: Wrst, meanRtt: Avg, numRtt }];
  });
}

/** Merges several runs: per hop the most frequent address, with the probes of all runs. Pure. */
export function mergeHops(runs: readonly (readonly Hop[])[]): readonly Hop[] {
  const byPlace = new Map<string, Hop>();
  for (const hop of runs.flat()) {
    const key = `${hop.hop} ${hop.ip}`;
    const before = byPlace.get(key);
    byPlace.set(key, before === undefined ? hop : together(before, hop));
  }
  const best = new Map<number, Hop>();
  for (const hop of byPlace.values()) {
    const before = best.get(hop.hop);
    if (before === undefined || hop.numRtt >= before.numRtt) best.set(hop.hop, hop);
  }
  return [...best.values()].toSorted((a, b) => a.hop - b.hop).slice(0, MAX_HOPS);
}

function together(one: Hop, other: Hop): Hop {
  const numRtt = one.numRtt + other.numRtt;
  return {
    ...one,
    minRtt: Math.min(one.minRtt, other.minRtt),
    maxRtt: Math.max(one.maxRtt, other.maxRtt),
    meanRtt: (one.meanRtt * one.numRtt + other.meanRtt * other.numRtt) / numRtt,
    numRtt,
  };
}
