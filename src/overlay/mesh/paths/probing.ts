/** A probe that has not been answered. */
interface Pending {
  readonly id: number;
  readonly sentAt: number;
  /** It was counted as missed, or something arrived after it was sent, so that it does not count. */
  readonly isSettled: boolean;
}

/** What probes have told of one session. Times are monotonic milliseconds. */
export interface Probing {
  readonly lastId: number;
  readonly lastSentAt: number;
  /** When one was last left out, because the other side's own had come. */
  readonly skippedAt: number;
  /** When it was last looked at. */
  readonly evaluatedAt: number;
  readonly pending: readonly Pending[];
  /** Probes that were overdue one after another while no byte arrived, and when the first of them was sent. */
  readonly missed: number;
  readonly troubleAt: number | undefined;
  /** When something was last found to have moved. */
  readonly busyAt: number;
  /** Something moved lately, or a probe is overdue: the next one comes soon. */
  readonly isHurried: boolean;
  /** Of the last 20 that were decided: whether each was answered. */
  readonly recent: readonly boolean[];
  /** Of the last one that was answered. */
  readonly rttMs: number | undefined;
}

/** What a look at the session found since the look before. */
export interface Findings {
  readonly gotBytes: boolean;
  /** More moved than probes and their answers. */
  readonly isBusy: boolean;
  /** The other side probes too, so that what comes from it says as much as an answer while nothing moves. */
  readonly maySkip?: boolean;
}

/** What is to be done after a look; `since` is when the first of the unanswered probes was sent. */
export type Probe =
  | { readonly kind: "none" }
  | { readonly kind: "send"; readonly id: number }
  | { readonly kind: "down"; readonly since: number };

/** How often a session is probed under traffic. */
export const BUSY_MS = 500;
const IDLE_MS = 5000;
/** However much comes, the round trip is measured this often. */
const MEASURE_MS = 30_000;
/** What moved so lately may have stopped because nothing gets through. */
const BUSY_FOR_MS = 5000;
const OVERDUE_MS = 500;
/** When a probe counts as lost in the figures; until then its answer is merely late. */
const LOST_MS = 5000;
const MISSES_TO_DOWN = 3;
const RECENT = 20;

/** A session of which nothing is known; its first probe is due at once. */
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
 * One look: who is overdue, who is lost, whether the session is down, and whether the next probe is due. It is down when three probes
 * in a row were overdue and no byte arrived since the first of them was sent. Pure.
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

/** Takes an answer; one to a probe that was given up says nothing. `rttMs` is undefined then. Pure. */
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

/** When to look again; while streams are open, often enough to notice that something moves. Pure. */
export function nextEvaluationAt(state: Probing, hasStreams: boolean): number {
  const overdueMs = overdueAfter(state);
  const deadlines = state.pending.map(({ sentAt, isSettled }) => sentAt + (isSettled ? LOST_MS : overdueMs));
  return Math.min(dueAt(state), ...deadlines, hasStreams ? state.evaluatedAt + BUSY_MS : Infinity);
}

/** The share of the last 20 decided probes that went unanswered, 0 to 1. Pure. */
export function lossOf({ recent }: Pick<Probing, "recent">): number {
  return recent.length === 0 ? 0 : recent.filter((isAnswered) => !isAnswered).length / recent.length;
}

/** Appends what became of probes, and forgets all but the last 20. Pure. */
export function withDecided(recent: readonly boolean[], isAnswered: boolean, times: number): readonly boolean[] {
  return times === 0 ? recent : [...recent, ...Array.from({ length: times }, () => isAnswered)].slice(-RECENT);
}

function dueAt({ lastSentAt, skippedAt, isHurried }: Probing): number {
  return isHurried ? lastSentAt + BUSY_MS : Math.max(lastSentAt, skippedAt) + IDLE_MS;
}

/** On a long way an answer that takes its time is not late. */
function overdueAfter({ rttMs }: Probing): number {
  return Math.min(LOST_MS, Math.max(OVERDUE_MS, (rttMs ?? 0) * 1.5));
}
