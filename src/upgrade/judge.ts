import type { Standing } from "../protocol/channel/standing.ts";

/** One observation of a version on trial. */
export interface Observation {
  /** The agent that responds on the socket: none, another version, or the version on trial. */
  readonly agent: "silent" | "other" | "new";
  /** `working`: authenticated, and a heartbeat was acknowledged. `refused`: by the control plane, for its own reasons. */
  readonly session: "unregistered" | "working" | "missing" | "refused";
  /** The control plane's verdict on the node when this program probes it; probed only if the session does not work. */
  readonly controlPlane: "unasked" | Standing;
  /** Descriptions of baseline items that do not work; omits those that are down for reasons outside the version. */
  readonly missing: readonly string[];
  /** Whether a network change is pending. */
  readonly isChangePending: boolean;
  /** Whether the launcher has given the version up. */
  readonly isGivenUp: boolean;
}

export interface JudgeLimits {
  /** Total time that a version may fail on its own, in milliseconds. */
  readonly windowMs: number;
  /** Uninterrupted time that everything must work, in milliseconds. */
  readonly settleMs: number;
  /** Maximum time that one observation counts for, because the judge may have been suspended, in milliseconds. */
  readonly maxElapsedMs: number;
  /** Time that a version may lack its session after the old version had one, in milliseconds. */
  readonly againMs: number;
  /** Time that a session of the old version counts against the version on trial, in milliseconds. */
  readonly betterMs: number;
}

/** State of the judgement; times in monotonic milliseconds. */
export interface JudgeState {
  readonly observedAt: number;
  readonly goodSince: number | undefined;
  /** Time that the version has failed on its own, and time without a session, less the forgiven time. */
  readonly ownMs: number;
  readonly sessionMs: number;
  /** Number of consecutive comparisons in which the old version had no session either. */
  readonly inVain: number;
  /** Time until which the old version's last session counts. */
  readonly betterUntil: number | undefined;
  /** Uninterrupted time that a network change has been pending. */
  readonly changeMs: number;
}

export interface Failing {
  readonly code: "not-answering" | "function-lost" | "no-session" | "given-up";
  readonly message: string;
}

export type Verdict =
  /** `failing` counts against the version, `waitingFor` does not. */
  | { readonly is: "open"; readonly failing?: Failing; readonly waitingFor?: string }
  | { readonly is: "healthy" }
  /** The version fails only for lack of a session, which may be the control plane's fault; compare it with the old version. */
  | { readonly is: "doubted"; readonly why: Failing }
  | { readonly is: "failed"; readonly why: Failing };

/** Default limits: 600 s as on the platform, 15 s of uninterrupted function, and 120 s for a session after the old version had one. */
export const JUDGE_LIMITS: JudgeLimits = {
  windowMs: 600_000,
  settleMs: 15_000,
  maxElapsedMs: 30_000,
  againMs: 120_000,
  betterMs: 600_000,
};

export function beginJudging(now: number): JudgeState {
  const charged = { ownMs: 0, sessionMs: 0, inVain: 0, betterUntil: undefined };
  return { observedAt: now, goodSince: undefined, ...charged, changeMs: 0 };
}

/** Judges one observation. Pure. `hadSession`: whether there was a session before the upgrade. */
export function judge(
  state: JudgeState,
  seen: Observation,
  { now, hadSession, limits }: { readonly now: number; readonly hadSession: boolean; readonly limits: JudgeLimits },
): readonly [JudgeState, Verdict] {
  if (seen.isGivenUp) {
    return [state, { is: "failed", why: { code: "given-up", message: "it stopped abnormally three times" } }];
  }
  const elapsedMs = Math.min(limits.maxElapsedMs, Math.max(0, now - state.observedAt));
  const changeMs = seen.isChangePending ? state.changeMs + elapsedMs : 0;
  const isChanging = seen.agent === "new" && seen.isChangePending && changeMs <= MAX_CHANGE_MS;
  const failing = isChanging ? undefined : failingOf(seen, hadSession);
  const observed = { ...state, observedAt: now, goodSince: undefined, changeMs };
  if (failing !== undefined) {
    const next = charge(observed, failing, elapsedMs);
    return [next, verdictOn(next, failing, { now, limits })];
  }
  const next = forgive(observed, elapsedMs);
  const waitingFor = isChanging ? "a change of the network, which is pending" : waitingOf(seen, hadSession);
  if (waitingFor !== undefined) return [next, { is: "open", waitingFor }];
  const goodSince = state.goodSince ?? now;
  return [{ ...next, goodSince }, now - goodSince >= limits.settleMs ? { is: "healthy" } : { is: "open" }];
}

function charge(state: JudgeState, { code }: Failing, elapsedMs: number): JudgeState {
  return code === "no-session"
    ? { ...state, sessionMs: state.sessionMs + elapsedMs }
    : { ...state, ownMs: state.ownMs + elapsedMs };
}

/** Reduces the failure time, so that restarts during a wait of days do not add up. */
function forgive(state: JudgeState, elapsedMs: number): JudgeState {
  const less = elapsedMs / FORGIVING;
  const sessionMs = Math.max(0, state.sessionMs - less);
  return { ...state, sessionMs, ownMs: Math.max(0, state.ownMs - Math.max(0, less - state.sessionMs)) };
}

function verdictOn(
  { ownMs, sessionMs, inVain, betterUntil }: JudgeState,
  failing: Failing,
  { now, limits: { windowMs } }: { readonly now: number; readonly limits: JudgeLimits },
): Verdict {
  if (ownMs >= windowMs) return { is: "failed", why: failing };
  // Each comparison with the old version restarts the agent twice.
  const patience = 2 ** Math.min(inVain, MAX_DOUBLINGS);
  if (ownMs + sessionMs < windowMs * patience) return { is: "open", failing };
  return { is: betterUntil !== undefined && now <= betterUntil ? "failed" : "doubted", why: failing };
}

/**
 * Continues after the old version ran in place of a doubted one. If the old version had a session, the other gets a last chance,
 * because the control plane may just have recovered. If it had none, the time without a session is forgiven. Pure.
 */
export function reconsider(
  state: JudgeState,
  didBetter: boolean,
  { now, limits: { windowMs, againMs, betterMs } }: { readonly now: number; readonly limits: JudgeLimits },
): JudgeState {
  const observed = { ...state, observedAt: now, goodSince: undefined };
  if (!didBetter) return { ...observed, sessionMs: 0, inVain: state.inVain + 1 };
  const sessionMs = Math.max(0, windowMs - againMs - state.ownMs);
  return { ...observed, sessionMs, inVain: 0, betterUntil: now + betterMs };
}

/** Limits the doubled window to 160 minutes. */
const MAX_DOUBLINGS = 4;

/** Ratio of working time to failure time after which the failure is forgiven. */
const FORGIVING = 10;

/** Slightly longer than the longest confirm window: a network change that disconnects the node is reverted by then. */
const MAX_CHANGE_MS = 65 * 60_000;

/** Returns the current failure that counts against the version. */
function failingOf({ agent, session, controlPlane, missing }: Observation, hadSession: boolean): Failing | undefined {
  if (agent === "silent") return { code: "not-answering", message: "its agent does not answer" };
  if (agent === "other") return { code: "not-answering", message: "the agent of another version answers" };
  if (missing.length > 0) {
    const more = missing.length > SHOWN ? ` and ${missing.length - SHOWN} more` : "";
    const what = missing.slice(0, SHOWN).join(", ");
    return { code: "function-lost", message: `lost since the upgrade: ${what}${more}`.slice(0, 1024) };
  }
  if (session === "missing" && hadSession && controlPlane === "admitting") {
    return { code: "no-session", message: "the control plane accepts this node, but there is no session" };
  }
  return undefined;
}

const SHOWN = 8;

const REFUSED = "the control plane, which refuses the node";

/** Returns the condition that the version waits for but does not control. */
function waitingOf({ session, controlPlane }: Observation, hadSession: boolean): string | undefined {
  switch (session) {
    case "unregistered":
    case "working":
      return undefined;
    case "refused":
      return REFUSED;
    case "missing":
      if (controlPlane === "unreached") return "the control plane, which cannot be reached";
      if (controlPlane === "refusing") return REFUSED;
      return hadSession ? "the check of the control plane" : "a session, which did not exist before either";
  }
}
