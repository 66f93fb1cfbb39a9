/** An unanswered probe. */
interface Pending {
  readonly id: number;
  readonly sentAt: number;
  /** It counts as missed, or bytes arrived after it was sent. */
  readonly isSettled: boolean;
}

/** State of the probes of one session. Times are monotonic milliseconds. */
export interface Probing {
  readonly lastId: number;
  readonly lastSentAt: number;
  /** When a probe was last skipped because bytes had arrived. */
  readonly skippedAt: number;
  /** When the state was last evaluated. */
  readonly evaluatedAt: number;
  readonly pending: readonly Pending[];
  /** Consecutive overdue probes without arriving bytes, and when the first of them was sent. */
  readonly missed: number;
  readonly troubleAt: number | undefined;
  /** When traffic was last seen. */
  readonly busyAt: number;
  /** There was traffic recently, or a probe is overdue: the next probe is sent soon. */
  readonly isHurried: boolean;
  /** Whether each of the last 20 decided probes was answered. */
  readonly recent: readonly boolean[];
  /** Round trip of the last answered probe. */
  readonly rttMs: number | undefined;
}

/** Observations on the session since the last evaluation. */
export interface Findings {
  readonly gotBytes: boolean;
  /** More bytes moved than those of probes and answers. */
  readonly isBusy: boolean;
  /** The other side sends probes too: while idle, its bytes are as good as an answer. */
  readonly maySkip?: boolean;
}

/** Action after an evaluation; `since` is when the first unanswered probe was sent. */
export type Probe =
  | { readonly kind: "none" }
  | { readonly kind: "send"; readonly id: number }
  | { readonly kind: "down"; readonly since: number };

/** Interval of probes under traffic. */
export const BUSY_MS = 500;
const IDLE_MS = 5000;
/** Interval of round trip measurements, even if other bytes arrive. */
const MEASURE_MS = 30_000;
/** Time after traffic during which it may have stopped because nothing gets through. */
const BUSY_FOR_MS = 5000;
const OVERDUE_MS = 500;
/** Age at which a probe counts as lost in the statistics; before that its answer is late. */
const LOST_MS = 5000;
const MISSES_TO_DOWN = 3;
const RECENT = 20;

/** Initial state; the first probe is due immediately. */
export function newProbing(now: number): Probing {
  return {
    lastId: 0,
    lastSentAt: -Infinity,
    skippedAt: -Infinity,
    evaluatedAt: now,
    pending: [],
    missed: 0,
    troubleAt: undefined,
    busyAt: -Infinity,
    isHurried: false,
    recent: [],
    rttMs: undefined,
  };
}

/**
 * Evaluates the state: counts overdue and lost probes, and decides whether the session is down or a probe is due. It is
 * down when three consecutive probes are overdue and no byte arrived since the first of them was sent. Pure.
 */
export function evaluate(
  before: Probing,
  { gotBytes, isBusy, maySkip }: Findings,
  now: number,
): readonly [Probing, Probe] {
  const overdueMs = overdueAfter(before);
  const isOverdue = ({ sentAt }: Pending): boolean => now - sentAt >= overdueMs;
  const fresh = before.pending.filter((one) => !one.isSettled && isOverdue(one));
  const waiting = before.pending.filter(({ sentAt }) => now - sentAt < LOST_MS);
  const busyAt = isBusy ? now : before.busyAt;
  const missed = gotBytes ? 0 : before.missed + fresh.length;
  const state: Probing = {
    ...before,
    evaluatedAt: now,
    pending: waiting.map((one) => (gotBytes || fresh.includes(one) ? { ...one, isSettled: true } : one)),
    missed,
    troubleAt: missed === 0 ? undefined : (before.troubleAt ?? fresh[0]?.sentAt),
    busyAt,
    isHurried: now - busyAt < BUSY_FOR_MS || missed > 0 || before.pending.some(isOverdue),
    recent: withDecided(before.recent, false, before.pending.length - waiting.length),
  };
  if (missed >= MISSES_TO_DOWN) return [state, { kind: "down", since: state.troubleAt ?? now }];
  if (now < dueAt(state)) return [state, { kind: "none" }];
  const skips = maySkip === true && gotBytes && !state.isHurried && now - state.lastSentAt < MEASURE_MS;
  if (skips) return [{ ...state, skippedAt: now }, { kind: "none" }];
  const id = state.lastId + 1;
  const pending = [...state.pending, { id, sentAt: now, isSettled: false }];
  return [
    { ...state, lastId: id, lastSentAt: now, pending },
    { kind: "send", id },
  ];
}

/** Records an answer; returns its round trip, or undefined if the probe counts as lost. Pure. */
export function answered(before: Probing, id: number, now: number): readonly [Probing, number | undefined] {
  const probe = before.pending.find((one) => one.id === id);
  if (probe === undefined) return [before, undefined];
  const rttMs = Math.max(0, now - probe.sentAt);
  const state: Probing = {
    ...before,
    pending: before.pending.filter((one) => one !== probe),
    missed: 0,
    troubleAt: undefined,
    recent: withDecided(before.recent, true, 1),
    rttMs,
  };
  return [state, rttMs];
}

/** Returns when to evaluate next; while streams are open, often enough to notice traffic. Pure. */
export function nextEvaluationAt(state: Probing, hasStreams: boolean): number {
  const overdueMs = overdueAfter(state);
  const deadlines = state.pending.map(({ sentAt, isSettled }) => sentAt + (isSettled ? LOST_MS : overdueMs));
  return Math.min(dueAt(state), ...deadlines, hasStreams ? state.evaluatedAt + BUSY_MS : Infinity);
}

/** Returns the share of the last 20 decided probes that were not answered, 0 to 1. Pure. */
export function lossOf({ recent }: Pick<Probing, "recent">): number {
  return recent.length === 0 ? 0 : recent.filter((isAnswered) => !isAnswered).length / recent.length;
}

/** Appends the results of probes and keeps the last 20. Pure. */
export function withDecided(recent: readonly boolean[], isAnswered: boolean, times: number): readonly boolean[] {
  return times === 0 ? recent : [...recent, ...Array.from({ length: times }, () => isAnswered)].slice(-RECENT);
}

function dueAt({ lastSentAt, skippedAt, isHurried }: Probing): number {
  return isHurried ? lastSentAt + BUSY_MS : Math.max(lastSentAt, skippedAt) + IDLE_MS;
}

/** Scales with the round trip: on a long path a slow answer is not late. */
function overdueAfter({ rttMs }: Probing): number {
  return Math.min(LOST_MS, Math.max(OVERDUE_MS, (rttMs ?? 0) * 1.5));
}
