import type { Standing } from "../protocol/channel/standing.ts";

/** What is seen of a version on trial at one moment. */
export interface Observation {
  /** Who answers on the agent's socket: nobody, another version, or the one on trial. */
  readonly agent: "silent" | "other" | "new";
  /** `working`: authenticated, and a heartbeat was taken. `refused`: by the control plane, for reasons that are its own. */
  readonly session: "unregistered" | "working" | "missing" | "refused";
  /** What the control plane makes of the node when another program than the agent proves it; asked only where the session does not work. */
  readonly controlPlane: "unasked" | Standing;
  /** What worked before and does not, in words; nothing that is down without the version's doing. */
  readonly missing: readonly string[];
  /** A change of the network is being tried that may be taken back yet. */
  readonly isChangePending: boolean;
  /** The launcher has given the version up. */
  readonly isGivenUp: boolean;
}

export interface JudgeLimits {
  /** How long in all a version may fail by its own doing. */
  readonly windowMs: number;
  /** How long in one piece everything must work. */
  readonly settleMs: number;
  /** The most that one look counts for: the judge may have been stopped in between. */
  readonly maxLookMs: number;
  /** How long a version may still lack its session after the old one has had one. */
  readonly againMs: number;
  /** How long a session of the old version in its place counts against it. */
  readonly betterMs: number;
}

/** Where the judgement stands; times in monotonic milliseconds. */
export interface JudgeState {
  readonly lookedAt: number;
  readonly goodSince: number | undefined;
  /** How long the version has failed by what it does itself, and how long it has had no session; less what is forgotten. */
  readonly ownMs: number;
  readonly sessionMs: number;
  /** How often in a row the old version was tried in its place, and had no session either. */
  readonly inVain: number;
  /** The old version had one a while ago: until when that counts. */
  readonly betterUntil: number | undefined;
  /** How long a change of the network has been pending, in one piece. */
  readonly changeMs: number;
}

export interface Failing {
  readonly code: "not-answering" | "function-lost" | "no-session" | "given-up";
  readonly message: string;
}

export type Verdict =
  /** `failing` is what counts against the version, `waitingFor` what does not. */
  | { readonly is: "open"; readonly failing?: Failing; readonly waitingFor?: string }
  | { readonly is: "healthy" }
  /** It would have failed but for a session that the control plane may be to blame for: would the old version have one? */
  | { readonly is: "doubted"; readonly why: Failing }
  | { readonly is: "failed"; readonly why: Failing };

/** Ten minutes, as the platform has it, a quarter of a minute of calm, and two minutes for a session that can be had. */
export const JUDGE_LIMITS: JudgeLimits = {
  windowMs: 600_000,
  settleMs: 15_000,
  maxLookMs: 30_000,
  againMs: 120_000,
  betterMs: 600_000,
};

export function beginJudging(now: number): JudgeState {
  const charged = { ownMs: 0, sessionMs: 0, inVain: 0, betterUntil: undefined };
  return { lookedAt: now, goodSince: undefined, ...charged, changeMs: 0 };
}

/** One look at the version. Pure. `hadSession`: whether there was one before the upgrade. */
export function judge(
  state: JudgeState,
  seen: Observation,
  { now, hadSession, limits }: { readonly now: number; readonly hadSession: boolean; readonly limits: JudgeLimits },
): readonly [JudgeState, Verdict] {
  if (seen.isGivenUp) {
    return [state, { is: "failed", why: { code: "given-up", message: "it did not end well three times" } }];
  }
  const lookMs = Math.min(limits.maxLookMs, Math.max(0, now - state.lookedAt));
  const changeMs = seen.isChangePending ? state.changeMs + lookMs : 0;
  const isChanging = seen.agent === "new" && seen.isChangePending && changeMs <= MAX_CHANGE_MS;
  const failing = isChanging ? undefined : failingOf(seen, hadSession);
  const looked = { ...state, lookedAt: now, goodSince: undefined, changeMs };
  if (failing !== undefined) {
    const next = charge(looked, failing, lookMs);
    return [next, verdictOn(next, failing, { now, limits })];
  }
  const next = forgive(looked, lookMs);
  const waitingFor = isChanging ? "a change of the network, which is pending" : waitingOf(seen, hadSession);
  if (waitingFor !== undefined) return [next, { is: "open", waitingFor }];
  const goodSince = state.goodSince ?? now;
  return [{ ...next, goodSince }, now - goodSince >= limits.settleMs ? { is: "healthy" } : { is: "open" }];
}

function charge(state: JudgeState, { code }: Failing, lookMs: number): JudgeState {
  return code === "no-session"
    ? { ...state, sessionMs: state.sessionMs + lookMs }
    : { ...state, ownMs: state.ownMs + lookMs };
}

/** Of a wait for days, the restarts in it must not add up. */
function forgive(state: JudgeState, lookMs: number): JudgeState {
  const less = lookMs / FORGIVING;
  const sessionMs = Math.max(0, state.sessionMs - less);
  return { ...state, sessionMs, ownMs: Math.max(0, state.ownMs - Math.max(0, less - state.sessionMs)) };
}

function verdictOn(
  { ownMs, sessionMs, inVain, betterUntil }: JudgeState,
  failing: Failing,
  { now, limits: { windowMs } }: { readonly now: number; readonly limits: JudgeLimits },
): Verdict {
  if (ownMs >= windowMs) return { is: "failed", why: failing };
  // Each look at the old version restarts the agent twice.
  const patience = 2 ** Math.min(inVain, MAX_DOUBLINGS);
  if (ownMs + sessionMs < windowMs * patience) return { is: "open", failing };
  return { is: betterUntil !== undefined && now <= betterUntil ? "failed" : "doubted", why: failing };
}

/**
 * Goes on after the old version was tried in the place of one that was doubted. Where it had a session the other gets a last chance, for
 * the control plane may have come to itself just then; where it had none, that nobody has one is not charged. Pure.
 */
export function reconsider(
  state: JudgeState,
  didBetter: boolean,
  { now, limits: { windowMs, againMs, betterMs } }: { readonly now: number; readonly limits: JudgeLimits },
): JudgeState {
  const looked = { ...state, lookedAt: now, goodSince: undefined };
  if (!didBetter) return { ...looked, sessionMs: 0, inVain: state.inVain + 1 };
  const sessionMs = Math.max(0, windowMs - againMs - state.ownMs);
  return { ...looked, sessionMs, inVain: 0, betterUntil: now + betterMs };
}

/** Ten minutes become nearly three hours. */
const MAX_DOUBLINGS = 4;

/** How many times longer a version must not fail than it failed, until that is forgotten. */
const FORGIVING = 10;

/** A little more than a trial of the network may last: what cuts the node off meanwhile is the network's doing, and is taken back. */
const MAX_CHANGE_MS = 65 * 60_000;

/** What counts against the version at this moment. */
function failingOf({ agent, session, controlPlane, missing }: Observation, hadSession: boolean): Failing | undefined {
  if (agent === "silent") return { code: "not-answering", message: "its agent does not answer" };
  if (agent === "other") return { code: "not-answering", message: "the agent of another version answers" };
  if (missing.length > 0) {
    const more = missing.length > SHOWN ? ` and ${missing.length - SHOWN} more` : "";
    const what = missing.slice(0, SHOWN).join(", ");
    return { code: "function-lost", message: `what worked before does not: ${what}${more}`.slice(0, 1024) };
  }
  if (session === "missing" && hadSession && controlPlane === "admitting") {
    return { code: "no-session", message: "the control plane would have this node, and there is no session with it" };
  }
  return undefined;
}

const SHOWN = 8;

const REFUSED = "the control plane, which refuses the node";

/** What a version waits for that is not its own doing. */
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
      return hadSession ? "an answer about the control plane" : "a session, of which there was none before";
  }
}
