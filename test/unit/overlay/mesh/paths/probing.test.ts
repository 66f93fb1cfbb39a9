import { describe, expect, it } from "vitest";
import {
  answered,
  evaluate,
  lossOf,
  newProbing,
  nextEvaluationAt,
  withDecided,
  type Findings,
  type Probing,
} from "../../../../../src/overlay/mesh/paths/probing.ts";

const QUIET: Findings = { gotBytes: false, isBusy: false };
const BYTES: Findings = { gotBytes: true, isBusy: false };
const BUSY: Findings = { gotBytes: true, isBusy: true };

/** Evaluates whenever due until `end`; answers arrive after `rtt`, if at all. */
function run(
  state: Probing,
  from: number,
  end: number,
  options: { rtt?: number | undefined; findings?: Findings; hasStreams?: boolean } = {},
): { state: Probing; sent: number[]; downAt: number | undefined; since: number | undefined } {
  const { rtt, findings = QUIET, hasStreams = false } = options;
  const sent: number[] = [];
  const answers: { id: number; at: number }[] = [];
  let now = from;
  for (;;) {
    const [next, probe] = evaluate(state, findings, now);
    state = next;
    if (probe.kind === "down") return { state, sent, downAt: now, since: probe.since };
    if (probe.kind === "send") {
      sent.push(now);
      if (rtt !== undefined) answers.push({ id: probe.id, at: now + rtt });
    }
    let at = nextEvaluationAt(state, hasStreams);
    while (answers[0] !== undefined && answers[0].at <= at) {
      const { id, at: answeredAt } = answers[0];
      answers.shift();
      [state] = answered(state, id, answeredAt);
      at = nextEvaluationAt(state, hasStreams);
    }
    if (at > end) return { state, sent, downAt: undefined, since: undefined };
    now = at;
  }
}

describe("probes", () => {
  it("are sent every five seconds without traffic", () => {
    expect(run(newProbing(0), 0, 20_000, { rtt: 20 }).sent).toEqual([0, 5000, 10_000, 15_000, 20_000]);
  });

  it("and every half second with traffic", () => {
    const { sent } = run(newProbing(0), 0, 2000, { rtt: 20, findings: BUSY, hasStreams: true });
    expect(sent).toEqual([0, 500, 1000, 1500, 2000]);
  });

  it("pause while the other side's own arrive, except a measurement every half minute", () => {
    const findings: Findings = { ...BYTES, maySkip: true };
    expect(run(newProbing(0), 0, 65_000, { rtt: 20, findings }).sent).toEqual([0, 30_000, 60_000]);
    const busy = run(newProbing(0), 0, 1000, { rtt: 20, findings: { ...BUSY, maySkip: true }, hasStreams: true });
    expect(busy.sent).toEqual([0, 500, 1000]);
  });

  it("resume when nothing arrives, and detect the failure as fast as otherwise", () => {
    const resting = run(newProbing(0), 0, 20_000, { rtt: 20, findings: { ...BYTES, maySkip: true } });
    const silent = run(resting.state, 25_000, 60_000, { findings: { ...QUIET, maySkip: true } });
    expect(silent.sent[0]).toBe(25_000);
    expect(silent.downAt).toBe(26_500);
  });

  it("check open streams twice a second, and without traffic are sent every five", () => {
    const [state] = evaluate(newProbing(0), QUIET, 0);
    const [idle] = answered(state, 1, 10);
    expect(nextEvaluationAt(idle, true)).toBe(500);
    expect(nextEvaluationAt(idle, false)).toBe(5000);
    const [later, probe] = evaluate(idle, QUIET, 500);
    expect(probe).toEqual({ kind: "none" });
    expect(evaluate(later, BUSY, 1000)[1]).toEqual({ kind: "send", id: 2 });
  });

  it("count recent traffic as ongoing, since it may have stopped for lack of an answer", () => {
    const [state] = evaluate(newProbing(0), BUSY, 0);
    const [busy] = answered(state, 1, 10);
    const { downAt } = run(busy, 500, 60_000, { hasStreams: true });
    expect(downAt).toBe(2000);
  });

  it("are sent every half second after a first loss, and the third ends the session", () => {
    const { sent, downAt, since } = run(newProbing(0), 0, 60_000);
    expect(sent).toEqual([0, 500, 1000]);
    expect(downAt).toBe(1500);
    expect(since).toBe(0);
  });

  it("start the count again on any byte", () => {
    let { state } = run(newProbing(0), 0, 1000);
    expect(state.missed).toBe(2);
    [state] = evaluate(state, BYTES, 1400);
    expect(state.missed).toBe(0);
    expect(run(state, 1500, 2900).downAt).toBeUndefined();
    expect(run(state, 1500, 60_000).downAt).toBe(3000);
  });

  it("and on an answer", () => {
    let { state } = run(newProbing(0), 0, 1000);
    [state] = answered(state, 3, 1100);
    expect(state.missed).toBe(0);
    expect(run(state, 1500, 2400).downAt).toBeUndefined();
  });

  it("accept a path of 900 ms", () => {
    const first = run(newProbing(0), 0, 30_000, { rtt: 900, findings: BUSY, hasStreams: true });
    expect(first.downAt).toBeUndefined();
    expect(lossOf(first.state)).toBe(0);
  });

  it("accept a late answer, and count it as lost after five seconds", () => {
    const [sent] = evaluate(newProbing(0), QUIET, 0);
    expect(answered(sent, 1, 4000)[1]).toBe(4000);
    const [after] = evaluate(sent, BYTES, 5000);
    expect(answered(after, 1, 5001)[1]).toBeUndefined();
    expect(lossOf(after)).toBe(1);
  });

  it("have the loss of the last twenty", () => {
    let state = newProbing(0);
    state = { ...state, recent: withDecided([], false, 15) };
    expect(lossOf(state)).toBe(1);
    state = { ...state, recent: withDecided(state.recent, true, 10) };
    expect(lossOf(state)).toBe(0.5);
    state = { ...state, recent: withDecided(state.recent, true, 20) };
    expect(lossOf(state)).toBe(0);
    expect(state.recent).toHaveLength(20);
    expect(lossOf(newProbing(0))).toBe(0);
  });

  it("ignore an answer to a probe that was never sent", () => {
    const state = newProbing(0);
    expect(answered(state, 7, 10)).toEqual([state, undefined]);
  });
});
