import type { ListenerCounters } from "../../../protocol/overlay/overlay.ts";
import type { ShadowMap } from "../../../protocol/values/shadow.ts";

/** Counters of the overlay at one moment. `pid` and `startedAt` identify its process; each counts from 0. */
export interface OverlayReading {
  /** Monotonic milliseconds. */
  readonly elapsed: number;
  readonly pid: number;
  readonly startedAt: number;
  readonly counters: readonly ListenerCounters[];
}

/** Counters of one connector over all its listeners. */
export interface ConnectorTotals {
  readonly connector: string;
  readonly flows: number;
  readonly activeFlows: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
  readonly datagramsDropped: number;
  readonly refusals: ListenerCounters["refusals"];
  readonly errors: ListenerCounters["errors"];
}

/** Limit of connectors in a sample, and of their JSON: the control plane accepts 32 KiB. */
const METRICS = { maxConnectors: 32, maxBytes: 8 * 1024 };
/** Part of the 64 KiB of a shadow. */
const FACTS_MAX_BYTES = 16 * 1024;
const MAX_NAME = 128;

/**
 * Computes the metrics between two readings: `l4.*` over all connectors, and `connector.<id>.*` of the busiest ones within the size limit.
 * Rates are in bit/s as clients see them (`rx` is what they sent), others per minute. Only gauges if the overlay was restarted in between.
 * Pure.
 */
export function overlayMetrics(
  previous: OverlayReading | undefined,
  current: OverlayReading,
): Readonly<Record<string, number>> {
  const isSame = previous !== undefined && isSameProcess(previous, current) && current.elapsed > previous.elapsed;
  const rises = isSame ? totalsBy(risesBetween(previous.counters, current.counters)) : [];
  const seconds = isSame ? (current.elapsed - previous.elapsed) / 1000 : 1;
  const active = current.counters.reduce((sum, { activeFlows }) => sum + activeFlows, 0);
  return {
    "l4.flowsActive": active,
    ...(isSame ? ratesOf("l4", sumOf(rises), seconds) : {}),
    ...(isSame ? busiest(rises, seconds) : {}),
  };
}

/**
 * Returns the shadow's facts of connectors with flows or refusals: `connector.<id>.counters`, without members that are 0. Those with
 * refusals or errors come first, then by bytes, up to 16 KiB; `connectors.others` is the sum of the rest. Pure.
 */
export function overlayFacts(current: OverlayReading): ShadowMap {
  const used = totalsBy(current.counters).filter(({ flows, refusals }) => flows + sum(refusals) > 0);
  const ranked = used
    .map((totals) => ({ totals, hasTrouble: sum(totals.refusals) + sum(totals.errors) > 0 }))
    .sort((a, b) => Number(b.hasTrouble) - Number(a.hasTrouble) || byTraffic(a.totals, b.totals))
    .map(({ totals }) => totals);
  const facts: ShadowMap = {};
  const others: ConnectorTotals[] = [];
  let left = FACTS_MAX_BYTES;
  for (const totals of ranked) {
    const key = `connector.${totals.connector}.counters`;
    const value = left > 0 && key.length <= MAX_NAME ? factOf(totals) : undefined;
    // After the first that does not fit the rest is not tried: there may be thousands.
    if (value !== undefined) left -= jsonBytes(key) + jsonBytes(value) + 2;
    if (value === undefined || left < 0) others.push(totals);
    else facts[key] = value;
  }
  if (others.length > 0) facts["connectors.others"] = { connectors: others.length, ...factOf(sumOf(others)) };
  return facts;
}

/** Reports whether both readings are of one process of the overlay. */
export function isSameProcess(previous: OverlayReading, current: OverlayReading): boolean {
  return previous.pid === current.pid && previous.startedAt === current.startedAt;
}

/** Returns the increase of each listener's counters; a new or returned listener started at 0. Pure. */
export function risesBetween(
  before: readonly ListenerCounters[],
  after: readonly ListenerCounters[],
): readonly ListenerCounters[] {
  const known = new Map(before.map((counters) => [counters.key, counters]));
  return after.map((counters) => {
    const earlier = known.get(counters.key);
    if (earlier === undefined || hasBegunAnew(earlier, counters)) return counters;
    return {
      ...counters,
      flows: counters.flows - earlier.flows,
      bytesIn: counters.bytesIn - earlier.bytesIn,
      bytesOut: counters.bytesOut - earlier.bytesOut,
      datagramsDropped: counters.datagramsDropped - earlier.datagramsDropped,
      refusals: risesOf(earlier.refusals, counters.refusals),
      errors: risesOf(earlier.errors, counters.errors),
    };
  });
}

/** Sums the listeners of each connector, in order of first appearance. Pure. */
export function totalsBy(counters: readonly ListenerCounters[]): readonly ConnectorTotals[] {
  const groups = new Map<string, ListenerCounters[]>();
  for (const one of counters) {
    const group = groups.get(one.connector);
    if (group === undefined) groups.set(one.connector, [one]);
    else group.push(one);
  }
  return [...groups].map(([connector, listeners]) => sumOf(listeners, connector));
}

type Kinds = ListenerCounters["refusals"];
type Counted = Omit<ConnectorTotals, "connector">;

function hasBegunAnew(before: ListenerCounters, after: ListenerCounters): boolean {
  const members = ["flows", "bytesIn", "bytesOut", "datagramsDropped"] as const;
  return members.some((member) => after[member] < before[member]);
}

function risesOf(before: Kinds, after: Kinds): Kinds {
  const rises: Kinds = {};
  for (const [kind, count] of entriesOf(after)) {
    const rise = count - (before[kind] ?? 0);
    if (rise > 0) rises[kind] = rise;
  }
  return rises;
}

function sumOf(all: readonly Counted[], connector = ""): ConnectorTotals {
  const [refusals, errors]: [Kinds, Kinds] = [{}, {}];
  let [flows, activeFlows, bytesIn, bytesOut, datagramsDropped] = [0, 0, 0, 0, 0];
  for (const one of all) {
    flows += one.flows;
    activeFlows += one.activeFlows;
    bytesIn += one.bytesIn;
    bytesOut += one.bytesOut;
    datagramsDropped += one.datagramsDropped;
    for (const [kind, count] of entriesOf(one.refusals)) refusals[kind] = (refusals[kind] ?? 0) + count;
    for (const [kind, count] of entriesOf(one.errors)) errors[kind] = (errors[kind] ?? 0) + count;
  }
  return { connector, flows, activeFlows, bytesIn, bytesOut, datagramsDropped, refusals, errors };
}

function ratesOf(prefix: string, rise: Counted, seconds: number): Record<string, number> {
  const perMinute = (count: number): number => rounded(count / (seconds / 60));
  return {
    [`${prefix}.rxBps`]: rounded((rise.bytesIn * 8) / seconds),
    [`${prefix}.txBps`]: rounded((rise.bytesOut * 8) / seconds),
    [`${prefix}.flowsNew`]: perMinute(rise.flows),
    [`${prefix}.refused`]: perMinute(sum(rise.refusals)),
    [`${prefix}.errors`]: perMinute(sum(rise.errors)),
    [`${prefix}.dropped`]: perMinute(rise.datagramsDropped),
  };
}

function busiest(rises: readonly ConnectorTotals[], seconds: number): Record<string, number> {
  const metrics: Record<string, number> = {};
  let bytes = 0;
  const isBusy = ({ flows, activeFlows, bytesIn, bytesOut, errors }: ConnectorTotals): boolean =>
    flows + activeFlows + bytesIn + bytesOut + sum(errors) > 0;
  const ranked = rises.filter(isBusy).sort(byTraffic).slice(0, METRICS.maxConnectors);
  for (const rise of ranked) {
    const prefix = `connector.${rise.connector}`;
    const own = { ...ratesOf(prefix, rise, seconds), [`${prefix}.flowsActive`]: rise.activeFlows };
    if (Object.keys(own).some((name) => name.length > MAX_NAME)) continue;
    bytes += jsonBytes(own);
    if (bytes > METRICS.maxBytes) break;
    Object.assign(metrics, own);
  }
  return metrics;
}

function byTraffic(a: ConnectorTotals, b: ConnectorTotals): number {
  const bytes = b.bytesIn + b.bytesOut - (a.bytesIn + a.bytesOut);
  return bytes || b.flows - a.flows || (a.connector < b.connector ? -1 : 1);
}

function factOf(totals: Counted): Record<string, number> {
  const { flows, activeFlows, bytesIn, bytesOut, datagramsDropped, refusals, errors } = totals;
  const members: readonly (readonly [string, number])[] = [
    ["active", activeFlows],
    ["bytesIn", bytesIn],
    ["bytesOut", bytesOut],
    ["dropped", datagramsDropped],
    ...entriesOf(refusals).map(([kind, count]) => [`refused.${kind}`, count] as const),
    ...entriesOf(errors).map(([kind, count]) => [`error.${kind}`, count] as const),
  ];
  return { flows, ...Object.fromEntries(members.filter(([, count]) => count > 0)) };
}

function entriesOf(kinds: Kinds): [keyof Kinds, number][] {
  return Object.entries(kinds) as [keyof Kinds, number][];
}

function sum(kinds: Kinds): number {
  return entriesOf(kinds).reduce((total, [, count]) => total + count, 0);
}

function rounded(value: number): number {
  return Math.round(value * 1000) / 1000;
}

function jsonBytes(value: unknown): number {
  return Buffer.byteLength(JSON.stringify(value));
}
