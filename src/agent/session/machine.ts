import { jitter, type Random } from "../../lib/async/backoff.ts";
import { retryDelay, type Ending } from "./backoff.ts";

/** The state of the session. Times are monotonic milliseconds. */
export type SessionState =
  | { readonly at: "waiting"; readonly retryAt: number; readonly ending: Ending; readonly past: Past }
  | { readonly at: "connecting"; readonly deadlineAt: number; readonly isWoken: boolean; readonly past: Past }
  | {
      readonly at: "online";
      readonly since: number;
      readonly lastHeardAt: number;
      readonly pingAt: number;
      readonly deadAt: number;
      readonly past: Past;
    }
  | { readonly at: "stopped" };

/** State that outlives single attempts. */
export interface Past {
  /** Attempts that failed since the last stable session. */
  readonly failures: number;
  /** When the last session ended, or the program started. */
  readonly offlineSince: number;
  readonly lastAttemptAt: number;
}

export type SessionEvent =
  | { readonly type: "timer" }
  | { readonly type: "opened" }
  | { readonly type: "heard" }
  | { readonly type: "ended"; readonly ending: Ending }
  /** A reason to try at once: `operator` overrides every wait, the others only the backoff. */
  | { readonly type: "wake"; readonly cause: "network" | "resumed" | "operator" }
  | { readonly type: "stop" };

export type Effect =
  | { readonly do: "dial" }
  | { readonly do: "ping" }
  | { readonly do: "terminate"; readonly reason: "silent" | "handshake-timeout" | "shutdown" };

export const HANDSHAKE_MS = 10_000;
const PING_MS = 15_000;
const DEAD_AFTER_MS = 37_500;
const STABLE_MS = 60_000;
/** A woken session that receives nothing within this time is taken for dead. */
const PROBE_MS = 10_000;
/** Wake-ups come in bursts while links settle. */
const WAKE_SPACING_MS = 1000;
/** A timer this late means that the process or the machine was suspended. */
const LATE_MS = 5000;

/** The first state: an attempt is due at once. */
export function beginSession(now: number): SessionState {
  const past = { failures: 0, offlineSince: now, lastAttemptAt: Number.NEGATIVE_INFINITY };
  return { at: "waiting", retryAt: now, ending: { kind: "failed" }, past };
}

/** Returns when the timer is due; undefined only when stopped. */
export function deadlineOf(state: SessionState): number | undefined {
  switch (state.at) {
    case "waiting":
      return state.retryAt;
    case "connecting":
      return state.deadlineAt;
    case "online":
      return Math.min(state.pingAt, state.deadAt);
    case "stopped":
      return undefined;
  }
}

/** Returns the next state and its effects. Pure. */
export function step(
  state: SessionState,
  event: SessionEvent,
  now: number,
  random: Random,
): readonly [SessionState, readonly Effect[]] {
  if (state.at === "stopped") return [state, []];
  if (event.type === "stop") {
    return [{ at: "stopped" }, state.at === "waiting" ? [] : [{ do: "terminate", reason: "shutdown" }]];
  }
  switch (state.at) {
    case "waiting":
      return whileWaiting(state, event, now);
    case "connecting":
      return whileConnecting(state, event, now, random);
    case "online":
      return whileOnline(state, event, now, random);
  }
}

type Waiting = SessionState & { at: "waiting" };
type Connecting = SessionState & { at: "connecting" };
type Online = SessionState & { at: "online" };
type Step = readonly [SessionState, readonly Effect[]];

function whileWaiting(state: Waiting, event: SessionEvent, now: number): Step {
  if (event.type === "timer" && now >= state.retryAt) return dial(state.past, now);
  if (event.type === "wake" && mayWake(state, event.cause)) {
    if (now - state.past.lastAttemptAt >= WAKE_SPACING_MS) return dial(state.past, now);
    return [{ ...state, retryAt: Math.min(state.retryAt, state.past.lastAttemptAt + WAKE_SPACING_MS) }, []];
  }
  return [state, []];
}

function mayWake(state: Waiting, cause: "network" | "resumed" | "operator"): boolean {
  return cause === "operator" || state.ending.kind === "failed" || state.ending.kind === "not-authentic";
}

function dial(past: Past, now: number): Step {
  const state: Connecting = {
    at: "connecting",
    deadlineAt: now + HANDSHAKE_MS,
    isWoken: false,
    past: { ...past, lastAttemptAt: now },
  };
  return [state, [{ do: "dial" }]];
}

function whileConnecting(state: Connecting, event: SessionEvent, now: number, random: Random): Step {
  switch (event.type) {
    case "opened":
      return [
        {
          at: "online",
          since: now,
          lastHeardAt: now,
          pingAt: nextPing(now, random),
          deadAt: now + DEAD_AFTER_MS,
          past: state.past,
        },
        [],
      ];
    case "ended":
      return [wait(state, event.ending, now, random), []];
    case "timer":
      if (now < state.deadlineAt) return [state, []];
      return [wait(state, { kind: "failed" }, now, random), [{ do: "terminate", reason: "handshake-timeout" }]];
    case "wake":
      // The current attempt may use an address that is gone; it is not cut, but the next one follows at once.
      return [{ ...state, isWoken: true }, []];
    default:
      return [state, []];
  }
}

function whileOnline(state: Online, event: SessionEvent, now: number, random: Random): Step {
  switch (event.type) {
    case "heard":
      return [{ ...state, lastHeardAt: now, deadAt: now + DEAD_AFTER_MS }, []];
    case "ended":
      return [wait(state, event.ending, now, random), []];
    case "wake":
      return probe(state, Math.min(state.deadAt, now + PROBE_MS), now, random);
    case "timer": {
      const due = Math.min(state.pingAt, state.deadAt);
      if (now < due) return [state, []];
      // After a suspension, unprocessed answers may wait in the socket, so silence proves nothing yet.
      if (now - due > LATE_MS) return probe(state, now + PROBE_MS, now, random);
      if (now >= state.deadAt) {
        return [wait(state, { kind: "failed" }, now, random), [{ do: "terminate", reason: "silent" }]];
      }
      return [{ ...state, pingAt: nextPing(now, random) }, [{ do: "ping" }]];
    }
    default:
      return [state, []];
  }
}

function probe(state: Online, deadAt: number, now: number, random: Random): Step {
  return [{ ...state, deadAt, pingAt: nextPing(now, random) }, [{ do: "ping" }]];
}

function wait(state: Connecting | Online, ending: Ending, now: number, random: Random): Waiting {
  const wasOnline = state.at === "online";
  const isStable = wasOnline && now - state.since >= STABLE_MS;
  // A short session may have ended for the whole fleet, so its first retry has the full spread.
  const failures = isStable ? 0 : Math.max(state.past.failures + 1, wasOnline ? 2 : 1);
  const offlineSince = isStable ? now : state.past.offlineSince;
  const delay = retryDelay({ ending, failures, offlineMs: now - offlineSince }, random);
  const isWoken = state.at === "connecting" && state.isWoken && ending.kind === "failed";
  return {
    at: "waiting",
    retryAt: isWoken ? Math.max(now, state.past.lastAttemptAt + WAKE_SPACING_MS) : now + delay,
    ending,
    past: { ...state.past, failures, offlineSince },
  };
}

function nextPing(now: number, random: Random): number {
  return now + jitter(PING_MS, [0.9, 1.1], random);
}
