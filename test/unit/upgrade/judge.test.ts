import { describe, expect, test } from "vitest";
import {
  beginJudging,
  judge,
  JUDGE_LIMITS,
  reconsider,
  type JudgeState,
  type Observation,
  type Verdict,
} from "../../../src/upgrade/judge.ts";

const limits = JUDGE_LIMITS;
const GOOD: Observation = {
  agent: "new",
  session: "working",
  controlPlane: "unasked",
  missing: [],
  isChangePending: false,
  isGivenUp: false,
};
const STEP_MS = 3000;

/** Observes the same every three seconds for this time; returns the last verdict and its time. */
function looked(seen: Observation, hadSession: boolean, forMs: number): { verdict: Verdict; afterMs: number } {
  let state: JudgeState = beginJudging(1000);
  let verdict: Verdict = { is: "open" };
  for (let now = 0; now <= forMs; now += STEP_MS) {
    [state, verdict] = judge(state, seen, { now: 1000 + now, hadSession, limits });
    if (verdict.is !== "open") return { verdict, afterMs: now };
  }
  return { verdict, afterMs: forMs };
}

const DAY_MS = 24 * 60 * 60_000;

const agents: readonly Observation["agent"][] = ["silent", "other", "new"];
const sessions: readonly Observation["session"][] = ["unregistered", "working", "missing", "refused"];
const planes: readonly Observation["controlPlane"][] = ["unasked", "unreached", "refusing", "admitting"];
const everything = agents.flatMap((agent) =>
  sessions.flatMap((session) =>
    planes.flatMap((controlPlane) =>
      [[], ["connector a"]].flatMap((missing) =>
        [true, false].flatMap((isGivenUp) =>
          [true, false].map((hadSession) => ({
            agent,
            session,
            controlPlane,
            missing,
            isGivenUp,
            hadSession,
            isChangePending: false,
          })),
        ),
      ),
    ),
  ),
);

/** Returns the expected verdict for a constant observation, by the rule and not the code. */
function expected({ hadSession, ...seen }: Observation & { hadSession: boolean }): string {
  if (seen.isGivenUp) return "given-up";
  if (seen.agent !== "new") return "not-answering";
  if (seen.missing.length > 0) return "function-lost";
  if (seen.session === "working" || seen.session === "unregistered") return "healthy";
  const isItsOwnDoing = seen.session === "missing" && hadSession && seen.controlPlane === "admitting";
  return isItsOwnDoing ? "no-session" : "waits";
}

test.each(everything)("always seen so: %o", ({ hadSession, ...seen }) => {
  const { verdict, afterMs } = looked(seen, hadSession, DAY_MS);
  const came = "why" in verdict ? verdict.why.code : verdict.is === "open" ? "waits" : verdict.is;
  const should = expected({ ...seen, hadSession });
  expect(came).toBe(should);
  // Only for a session that this version needs may another party be to blame.
  expect(verdict.is === "doubted").toBe(should === "no-session");
  if (should === "given-up") expect(afterMs).toBe(0);
  else if (should === "healthy") expect(afterMs).toBe(limits.settleMs);
  else if (should !== "waits") expect(afterMs).toBe(limits.windowMs);
});

/** Every pair of conditions, the first for a while, then the second: only the total failing time counts. */
const kinds: readonly (readonly [string, Observation])[] = [
  ["good", GOOD],
  ["silent", { ...GOOD, agent: "silent" }],
  ["the old one", { ...GOOD, agent: "other" }],
  ["a lost connector", { ...GOOD, missing: ["connector a"] }],
  ["no session", { ...GOOD, session: "missing", controlPlane: "admitting" }],
  ["nobody reachable", { ...GOOD, session: "missing", controlPlane: "unreached" }],
  ["nobody who would have it", { ...GOOD, session: "missing", controlPlane: "refusing" }],
  ["refused", { ...GOOD, session: "refused" }],
  ["given up", { ...GOOD, isGivenUp: true }],
];
const FAILING = new Set(["silent", "the old one", "a lost connector", "no session"]);
const pairs = kinds.flatMap(([first, a]) => kinds.map(([second, b]) => [first, second, a, b] as const));

describe("one observation, and then another", () => {
  test.each(pairs)("%s, then %s", (first, second, a, b) => {
    let state = beginJudging(0);
    let verdict: Verdict = { is: "open" };
    let now = 0;
    const look = (seen: Observation, forMs: number): boolean => {
      for (const until = now + forMs; now < until; now += STEP_MS) {
        [state, verdict] = judge(state, seen, { now, hadSession: true, limits });
        if (verdict.is !== "open") return true;
      }
      return false;
    };
    // Six minutes of each: neither is enough alone, two failing ones are. Below the calm period if the first is good.
    const ended = look(a, first === "good" ? limits.settleMs - STEP_MS : 360_000);
    if (first === "given up") return expect(verdict).toMatchObject({ is: "failed", why: { code: "given-up" } });
    expect(ended).toBe(false);
    look(b, 360_000);
    if (second === "given up") return expect(verdict).toMatchObject({ is: "failed", why: { code: "given-up" } });
    if (second === "good") return expect(verdict).toEqual({ is: "healthy" });
    const fails = [first, second].includes("no session") ? "doubted" : "failed";
    expect(verdict.is).toBe(FAILING.has(first) && FAILING.has(second) ? fails : "open");
  });
});

test("the calm period starts again after every lapse", () => {
  let state = beginJudging(0);
  let verdict: Verdict;
  for (let now = 0; now < 10 * limits.settleMs; now += STEP_MS) {
    const isLapse = now % (limits.settleMs - STEP_MS) === 0;
    const seen: Observation = isLapse ? { ...GOOD, session: "missing", controlPlane: "unreached" } : GOOD;
    [state, verdict] = judge(state, seen, { now, hadSession: true, limits });
    expect(verdict.is).toBe("open");
  }
});

test("a verifier that was stopped for hours counts no more than one poll against the version", () => {
  const bad: Observation = { ...GOOD, agent: "silent" };
  const [first] = judge(beginJudging(0), bad, { now: DAY_MS, hadSession: true, limits });
  expect(first.ownMs).toBe(limits.maxElapsedMs);
  const [second, verdict] = judge(first, bad, { now: DAY_MS - 5000, hadSession: true, limits });
  expect([second.ownMs, verdict.is]).toEqual([limits.maxElapsedMs, "open"]);
});

test("forgets short failures in a long wait, and not long ones with short waits between them", () => {
  const waits: Observation = { ...GOOD, session: "missing", controlPlane: "unreached" };
  const fails: Observation = { ...GOOD, agent: "silent" };
  const resultOf = (failMs: number, waitMs: number): Verdict["is"] => {
    let state = beginJudging(0);
    let verdict: Verdict = { is: "open" };
    for (let now = 0; now < DAY_MS && verdict.is === "open"; now += STEP_MS) {
      const seen = now % (failMs + waitMs) < failMs ? fails : waits;
      [state, verdict] = judge(state, seen, { now, hadSession: true, limits });
    }
    return verdict.is;
  };
  expect(resultOf(30_000, 600_000)).toBe("open");
  expect(resultOf(60_000, 300_000)).toBe("failed");
});

describe("a version without the session of the baseline", () => {
  const NO_SESSION: Observation = { ...GOOD, session: "missing", controlPlane: "admitting" };
  const SILENT: Observation = { ...GOOD, agent: "silent" };

  /** Continues from a state with the same observation every three seconds, until a verdict or for a day; returns the time. */
  function lookedFrom(from: JudgeState, seen: Observation) {
    let state = from;
    for (let now = state.observedAt + STEP_MS; now < state.observedAt + DAY_MS; now += STEP_MS) {
      const [next, verdict] = judge(state, seen, { now, hadSession: true, limits });
      state = next;
      if (verdict.is !== "open") return { state, verdict, afterMs: now - from.observedAt };
    }
    return { state, verdict: undefined, afterMs: DAY_MS };
  }
  const doubted = () => lookedFrom(beginJudging(0), NO_SESSION).state;
  const after = (state: JudgeState, didBetter: boolean): JudgeState =>
    reconsider(state, didBetter, { now: state.observedAt + 60_000, limits });

  test("fails if the old one had one and it has none for two minutes more", () => {
    const { verdict, afterMs } = lookedFrom(after(doubted(), true), NO_SESSION);
    expect(verdict).toMatchObject({ is: "failed", why: { code: "no-session" } });
    expect(afterMs).toBe(limits.againMs);
  });

  test("is compared with the old one's session within its own time, however soon it would fail", () => {
    const own = { ...limits, windowMs: 1000, againMs: 500, betterMs: 5000 };
    const state = reconsider(beginJudging(0), true, { now: 0, limits: own });
    const at = (now: number) =>
      judge({ ...state, sessionMs: 1000 }, NO_SESSION, { now, hadSession: true, limits: own });
    expect([5000, 5001].map((now) => at(now)[1].is)).toEqual(["failed", "doubted"]);
  });

  test("is healthy with one, once the old one had one", () => {
    expect(lookedFrom(after(doubted(), true), GOOD).verdict).toEqual({ is: "healthy" });
  });

  test("is compared again if the answer is old", () => {
    const waits: Observation = { ...NO_SESSION, controlPlane: "unreached" };
    let state = after(doubted(), true);
    for (let step = 0; step < 400; step += 1) {
      [state] = judge(state, waits, { now: state.observedAt + STEP_MS, hadSession: true, limits });
    }
    expect(lookedFrom(state, NO_SESSION).verdict?.is).toBe("doubted");
  });

  test("never fails if the old one has none either, and is compared with backoff", () => {
    let state = doubted();
    const intervals: number[] = [];
    for (let round = 0; round < 7; round += 1) {
      const { state: next, verdict, afterMs } = lookedFrom(after(state, false), NO_SESSION);
      expect(verdict?.is).toBe("doubted");
      intervals.push(afterMs / limits.windowMs);
      state = next;
    }
    expect(intervals).toEqual([2, 4, 8, 16, 16, 16, 16]);
    // Its own failures count as usual.
    const { verdict, afterMs } = lookedFrom(after(state, false), SILENT);
    expect([verdict?.is, afterMs]).toEqual(["failed", limits.windowMs]);
  });

  test("does not fail for a brief problem of another kind", () => {
    let state = beginJudging(0);
    let verdict: Verdict = { is: "open" };
    while (state.sessionMs < limits.windowMs - STEP_MS) {
      [state, verdict] = judge(state, NO_SESSION, { now: state.observedAt + STEP_MS, hadSession: true, limits });
    }
    expect(verdict.is).toBe("open");
    const lost: Observation = { ...NO_SESSION, missing: ["service a"] };
    [state, verdict] = judge(state, lost, { now: state.observedAt + STEP_MS, hadSession: true, limits });
    expect(verdict).toMatchObject({ is: "doubted", why: { code: "function-lost" } });
    const next = after(state, false);
    expect(next).toMatchObject({ ownMs: STEP_MS, sessionMs: 0 });
  });

  test("has its lapses forgotten, its own last", () => {
    const waits: Observation = { ...NO_SESSION, controlPlane: "unreached" };
    const state = { ...beginJudging(0), ownMs: 3000, sessionMs: 3000 };
    const forgiven = (now: number) => judge(state, waits, { now, hadSession: true, limits })[0];
    expect(forgiven(20_000)).toMatchObject({ ownMs: 3000, sessionMs: 1000 });
    expect(forgiven(30_000)).toMatchObject({ ownMs: 3000, sessionMs: 0 });
    const once = { ...state, sessionMs: 1000 };
    expect(judge(once, waits, { now: 30_000, hadSession: true, limits })[0]).toMatchObject({
      ownMs: 1000,
      sessionMs: 0,
    });
  });
});

test("names what is lost, within a limit", () => {
  const missing = Array.from({ length: 500 }, (_, i) => `connector ${"x".repeat(200)}${i}`);
  const [, verdict] = judge(beginJudging(0), { ...GOOD, missing }, { now: 1, hadSession: true, limits });
  const message = verdict.is === "open" ? (verdict.failing?.message ?? "") : "";
  expect(message.startsWith("lost since the upgrade: connector x")).toBe(true);
  expect(message.length).toBeLessThanOrEqual(1024);
  const [, few] = judge(
    beginJudging(0),
    { ...GOOD, missing: missing.slice(0, 1) },
    { now: 1, hadSession: true, limits },
  );
  expect(few).toMatchObject({ failing: { code: "function-lost" } });
});

describe("while a change of the network is pending", () => {
  const CUT: Observation = { ...GOOD, session: "missing", controlPlane: "admitting", missing: ["gateway a"] };
  const HOUR_MS = 60 * 60_000;

  test("loss over it is not the version's fault, and nothing is verified either", () => {
    for (const seen of [GOOD, CUT]) {
      const { verdict } = looked({ ...seen, isChangePending: true }, true, HOUR_MS);
      expect(verdict).toEqual({ is: "open", waitingFor: "a change of the network, which is pending" });
    }
  });

  test("an agent that does not answer, or was given up, fails all the same", () => {
    for (const seen of [{ agent: "silent" }, { agent: "other" }, { isGivenUp: true }] as const) {
      expect(looked({ ...GOOD, ...seen, isChangePending: true }, true, HOUR_MS).verdict.is).toBe("failed");
    }
  });

  test("waits for an endless one no longer than a trial may last", () => {
    const { verdict, afterMs } = looked({ ...CUT, isChangePending: true }, true, DAY_MS);
    expect(verdict).toMatchObject({ is: "failed", why: { code: "function-lost" } });
    expect(afterMs).toBe(65 * 60_000 + limits.windowMs);
    expect(looked({ ...GOOD, isChangePending: true }, true, DAY_MS).verdict.is).toBe("healthy");
  });
});
