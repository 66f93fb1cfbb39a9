import { backoff } from "../../lib/async/backoff.ts";
import { SHADOW_MAX_BYTES } from "../../protocol/values/shadow.ts";
import type { ShadowMap, ShadowValue } from "../../protocol/values/shadow.ts";

/** The report that the control plane acknowledged; kept on disk by the caller, so that a restart reports only what changed. */
export interface Acknowledged {
  readonly version: number;
  readonly facts: ShadowMap;
}

/** The parameters of `shadow.report`; a full set has `base` 0. */
export interface ShadowReport {
  readonly version: number;
  readonly base: number;
  readonly set: ShadowMap;
  readonly unset: string[];
}

export interface ReporterState {
  readonly acknowledged: Acknowledged | undefined;
  /** The report that has no answer yet, or whose answer was lost. */
  readonly sent: Acknowledged | undefined;
  readonly isInFlight: boolean;
  /** The highest version used here or named by the control plane; the next version is above it. */
  readonly highest: number;
  /** Monotonic milliseconds. */
  readonly sentAt: number | undefined;
  readonly changedAt: number | undefined;
  /** Reports in a row that were not acknowledged. */
  readonly failures: number;
  /** Keys of the last facts that were dropped: too long, not finite, or too many. */
  readonly dropped: number;
}

export interface NextReport {
  readonly state: ReporterState;
  readonly report: ShadowReport | undefined;
  /** When to call again, in milliseconds; undefined if only new facts or an answer can change anything. */
  readonly waitMs: number | undefined;
}

const INTERVAL = { firstMs: 1000, maxMs: 60_000 };
const DEBOUNCE_MS = 5000;
const MAX_KEY_LENGTH = 128;
const MAX_VALUE_BYTES = 4096;
const MAX_UNSET = 4096;

/** Numbers that drift on an idle machine, and the change from which they are reported. */
const TOLERANCES: Readonly<Record<string, number>> = { storage: 0.5, "os.boot.tstamp": 5 };

/** Returns the state after a start, with the last acknowledged report. */
export function initialReporter(acknowledged: Acknowledged | undefined): ReporterState {
  return {
    acknowledged,
    sent: undefined,
    isInFlight: false,
    highest: acknowledged?.version ?? 0,
    sentAt: undefined,
    changedAt: undefined,
    failures: 0,
    dropped: 0,
  };
}

/** Decides whether the facts need a report at `now` (monotonic milliseconds); the returned state counts it as sent. */
export function nextReport(state: ReporterState, facts: ShadowMap, now: number): NextReport {
  const { facts: allowed, dropped } = withinLimits(facts);
  const base = state.acknowledged;
  const wanted = base === undefined ? allowed : settle(base.facts, allowed);
  const current = { ...state, dropped };
  if (base !== undefined && isSame(base.facts, wanted)) {
    return { state: { ...current, changedAt: undefined }, report: undefined, waitMs: undefined };
  }
  const changedAt = state.changedAt ?? now;
  const waiting = { ...current, changedAt };
  if (state.isInFlight) return { state: waiting, report: undefined, waitMs: undefined };
  const earliest = Math.max(
    state.sentAt === undefined ? now : state.sentAt + backoff(state.failures + 1, INTERVAL),
    base === undefined ? now : changedAt + DEBOUNCE_MS,
  );
  if (earliest > now) return { state: waiting, report: undefined, waitMs: earliest - now };
  const report = reportOf(base, wanted, nextVersion(state.highest));
  const sent = { version: report.version, facts: wanted };
  return {
    state: { ...current, sent, isInFlight: true, highest: report.version, sentAt: now, changedAt: undefined },
    report,
    waitMs: undefined,
  };
}

/** Handles the acknowledgement of the report in flight; one of another version counts as lost. */
export function reportAcknowledged(state: ReporterState, version: number): ReporterState {
  if (state.sent?.version !== version) return reportLost(state);
  return { ...state, acknowledged: state.sent, sent: undefined, isInFlight: false, failures: 0 };
}

/** Handles a missing answer, or an error other than `out-of-sync`: the report may or may not have arrived. */
export function reportLost(state: ReporterState): ReporterState {
  return state.isInFlight ? { ...state, isInFlight: false, failures: state.failures + 1 } : state;
}

/** Handles `out-of-sync`: the next report is the full set. */
export function outOfSync(state: ReporterState): ReporterState {
  return { ...reportLost(state), acknowledged: undefined, sent: undefined };
}

/** Handles the start of a session, in which the control plane names the version that it holds. */
export function sessionBegan(state: ReporterState, reportedVersion: number): ReporterState {
  const highest = Math.max(state.highest, reportedVersion);
  const base = { ...state, highest, isInFlight: false, failures: 0 };
  if (state.sent?.version === reportedVersion) return { ...base, acknowledged: state.sent, sent: undefined };
  if (state.acknowledged?.version === reportedVersion) return { ...base, sent: undefined };
  return outOfSync(base);
}

/** Drops facts beyond the limits of the protocol; returns the rest by importance. */
export function withinLimits(facts: ShadowMap): { readonly facts: ShadowMap; readonly dropped: number } {
  const kept: [string, ShadowValue][] = [];
  let size = 2;
  for (const key of Object.keys(facts).sort(byImportance)) {
    const value = facts[key];
    if (value === undefined || key === "" || key.length > MAX_KEY_LENGTH || !isFiniteValue(value)) continue;
    const valueBytes = Buffer.byteLength(JSON.stringify(value));
    const entryBytes = Buffer.byteLength(JSON.stringify(key)) + valueBytes + 2;
    if (valueBytes > MAX_VALUE_BYTES || size + entryBytes >= SHADOW_MAX_BYTES) continue;
    size += entryBytes;
    kept.push([key, value]);
  }
  return { facts: Object.fromEntries(kept), dropped: Object.keys(facts).length - kept.length };
}

function reportOf(base: Acknowledged | undefined, wanted: ShadowMap, version: number): ShadowReport {
  const full = { version, base: 0, set: wanted, unset: [] };
  if (base === undefined) return full;
  const unset = Object.keys(base.facts).filter((key) => wanted[key] === undefined);
  if (unset.length > MAX_UNSET) return full;
  const changed = Object.entries(wanted).filter(([key, value]) => !isSameValue(base.facts[key], value));
  return { version, base: base.version, set: Object.fromEntries(changed), unset };
}

/** Keeps the reported number if the new one is within its tolerance. */
function settle(reported: ShadowMap, facts: ShadowMap): ShadowMap {
  const settled = { ...facts };
  for (const [key, tolerance] of Object.entries(TOLERANCES)) {
    const [before, now] = [reported[key], facts[key]];
    if (typeof before === "number" && typeof now === "number" && Math.abs(before - now) < tolerance)
      settled[key] = before;
  }
  return settled;
}

/** Ignores the time of publishing, which is not reported on its own. */
function isSame(left: ShadowMap, right: ShadowMap): boolean {
  const keys = new Set([...Object.keys(left), ...Object.keys(right)]);
  keys.delete("publishTime");
  return [...keys].every((key) => isSameValue(left[key], right[key]));
}

function isSameValue(left: ShadowValue | undefined, right: ShadowValue | undefined): boolean {
  return left === right || (left !== undefined && right !== undefined && canonical(left) === canonical(right));
}

function canonical(value: ShadowValue): string {
  if (typeof value !== "object") return JSON.stringify(value);
  return JSON.stringify(Object.entries(value).sort(([left], [right]) => (left < right ? -1 : 1)));
}

function isFiniteValue(value: ShadowValue): boolean {
  const numbers = typeof value === "object" ? Object.values(value) : [value];
  return numbers.every((item) => typeof item !== "number" || Number.isFinite(item));
}

/** Sorts the node's own keys before those of its links and items, of which there may be many. */
function byImportance(left: string, right: string): number {
  return rankOf(left) - rankOf(right) || (left < right ? -1 : 1);
}

function rankOf(key: string): number {
  if (key.startsWith("nic.")) return 1;
  return /^config\.[^.]+\.(?:item|reported)\./.test(key) ? 2 : 0;
}

function nextVersion(highest: number): number {
  return Math.min(highest, Number.MAX_SAFE_INTEGER - 1) + 1;
}
