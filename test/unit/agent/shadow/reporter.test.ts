import * as fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  initialReporter,
  nextReport,
  outOfSync,
  reportAcknowledged,
  reportLost,
  sessionBegan,
  withinLimits,
} from "../../../../src/agent/shadow/reporter.ts";
import type { ReporterState, ShadowReport } from "../../../../src/agent/shadow/reporter.ts";
import { nodeMethods } from "../../../../src/protocol/channel/methods.ts";
import type { ShadowMap } from "../../../../src/protocol/values/shadow.ts";
import { runs } from "../../../support/sample.ts";

/** Advances the time until a report is due. */
function sendNow(state: ReporterState, facts: ShadowMap, from: number) {
  let now = from;
  let step = nextReport(state, facts, now);
  for (let tries = 0; step.report === undefined && step.waitMs !== undefined; tries += 1) {
    if (tries > 10) throw new Error("the report is put off for ever");
    now += step.waitMs;
    step = nextReport(step.state, facts, now);
  }
  return { ...step, now };
}

function acknowledged(facts: ShadowMap): ReporterState {
  const { state, report } = sendNow(initialReporter(undefined), facts, 0);
  return reportAcknowledged(state, report?.version ?? 0);
}

test("sends everything first, then changes, on the acknowledged base", () => {
  const first = nextReport(initialReporter(undefined), { a: "1", b: 2 }, 0);
  expect(first.report).toEqual({ version: 1, base: 0, set: { a: "1", b: 2 }, unset: [] });
  const state = reportAcknowledged(first.state, 1);
  const second = sendNow(state, { a: "1", c: "new" }, 10_000);
  expect(second.report).toEqual({ version: 2, base: 1, set: { c: "new" }, unset: ["b"] });
  expect(second.now).toBe(15_000);
});

test("an unchanged machine sends nothing and needs no timer", () => {
  const step = nextReport(acknowledged({ a: "1" }), { a: "1" }, 60_000);
  expect(step).toMatchObject({ report: undefined, waitMs: undefined });
});

test("one request in flight, and a change meanwhile is sent next", () => {
  const sent = nextReport(initialReporter(undefined), { a: 1 }, 0);
  const held = nextReport(sent.state, { a: 2 }, 20_000);
  expect(held).toMatchObject({ report: undefined, waitMs: undefined });
  expect(sendNow(reportAcknowledged(held.state, 1), { a: 2 }, 20_001).report).toMatchObject({ base: 1, set: { a: 2 } });
});

test("a change reverted within five seconds is never sent", () => {
  const waiting = nextReport(acknowledged({ a: 1 }), { a: 2 }, 10_000);
  expect(waiting.waitMs).toBe(5000);
  const back = nextReport(waiting.state, { a: 1 }, 12_000);
  expect(back).toMatchObject({ report: undefined, waitMs: undefined });
  expect(nextReport(back.state, { a: 2 }, 14_900).waitMs).toBe(5000);
});

test("continuous changes do not delay the report", () => {
  let { state } = nextReport(acknowledged({ a: 0 }), { a: 1 }, 10_000);
  for (let second = 1; second < 5; second += 1)
    ({ state } = nextReport(state, { a: second + 1 }, 10_000 + second * 1000));
  expect(nextReport(state, { a: 99 }, 15_000).report?.set).toEqual({ a: 99 });
});

test("the time of publishing is sent along but is no change", () => {
  const state = acknowledged({ a: 1, publishTime: 1 });
  expect(sendNow(state, { a: 1, publishTime: 2 }, 60_000).report).toBeUndefined();
  expect(sendNow(state, { a: 2, publishTime: 3 }, 60_000).report?.set).toEqual({ a: 2, publishTime: 3 });
});

test("free space and boot time may drift within their tolerance, measured from the last report", () => {
  const state = acknowledged({ storage: 10, "os.boot.tstamp": 1000 });
  expect(sendNow(state, { storage: 10.4, "os.boot.tstamp": 1002 }, 60_000).report).toBeUndefined();
  expect(sendNow(state, { storage: 9.4, "os.boot.tstamp": 1001 }, 60_000).report?.set).toEqual({ storage: 9.4 });
});

test("out of sync: sends everything, with a higher version", () => {
  const sent = sendNow(acknowledged({ a: 1, b: 1 }), { a: 2, b: 1 }, 10_000);
  const again = sendNow(outOfSync(sent.state), { a: 2, b: 1 }, sent.now);
  expect(again.report).toEqual({ version: 3, base: 0, set: { a: 2, b: 1 }, unset: [] });
});

test("permanent refusals slow down to one request a minute", () => {
  let state = initialReporter(undefined);
  let now = 0;
  const gaps: number[] = [];
  for (let count = 0; count < 12; count += 1) {
    const step = sendNow(state, { a: 1 }, now);
    gaps.push(step.now - now);
    now = step.now;
    state = count % 2 === 0 ? outOfSync(step.state) : reportLost(step.state);
  }
  expect(gaps.slice(0, 4)).toEqual([0, 2000, 4000, 8000]);
  expect(gaps.at(-1)).toBe(60_000);
});

describe("a session starts", () => {
  test("with a known version: sends changes only", () => {
    const state = sessionBegan(acknowledged({ a: 1 }), 1);
    expect(sendNow(state, { a: 2 }, 10_000).report).toMatchObject({ base: 1 });
  });

  test("with the version whose answer was lost: counts it as acknowledged", () => {
    const sent = sendNow(acknowledged({ a: 1 }), { a: 2 }, 10_000);
    const state = sessionBegan(reportLost(sent.state), 2);
    expect(state.acknowledged).toEqual({ version: 2, facts: { a: 2 } });
    expect(sendNow(state, { a: 2 }, 60_000).report).toBeUndefined();
  });

  test("with any other version: sends everything, above both", () => {
    const state = sessionBegan(acknowledged({ a: 1 }), 40);
    expect(sendNow(state, { a: 1 }, 60_000).report).toMatchObject({ version: 41, base: 0 });
    const absurd = sessionBegan(acknowledged({ a: 1 }), Number.MAX_SAFE_INTEGER);
    expect(Number.isSafeInteger(sendNow(absurd, { a: 1 }, 60_000).report?.version)).toBe(true);
  });
});

test("an answer with another version acknowledges nothing, and the report is repeated", () => {
  const { state, report } = nextReport(initialReporter(undefined), { a: 1 }, 0);
  const lost = reportAcknowledged(state, 7);
  expect(lost).toMatchObject({ acknowledged: undefined, isInFlight: false, failures: 1 });
  expect(nextReport(lost, { a: 1 }, 2000).report).toMatchObject({ base: 0, set: report?.set });
  expect(reportAcknowledged(lost, 7)).toBe(lost);
});

describe("limits", () => {
  test("drops and counts a long key, a long value and a number that is not finite", () => {
    const facts = {
      ["k".repeat(129)]: "x",
      long: "é".repeat(2048),
      bad: Number.NaN,
      none: Infinity,
      good: "x".repeat(4000),
    };
    expect(withinLimits(facts)).toEqual({ facts: { good: facts.good }, dropped: 4 });
    expect(nextReport(initialReporter(undefined), facts, 0).state.dropped).toBe(4);
  });

  test("of too many keys the node's own come first", () => {
    const links = Object.fromEntries(Array.from({ length: 100 }, (_, at) => [`nic.eth${at}.x`, "x".repeat(1000)]));
    const { facts, dropped } = withinLimits({ ...links, zone: "z" });
    expect(facts["zone"]).toBe("z");
    expect(dropped).toBeGreaterThan(0);
    expect(JSON.stringify(facts).length).toBeLessThan(64 * 1024);
  });

  test("any facts give a report that the protocol accepts", () => {
    const anything = fc.dictionary(
      fc.string({ maxLength: 140 }),
      fc.oneof(
        fc.string({ maxLength: 5000 }),
        fc.double(),
        fc.boolean(),
        fc.dictionary(fc.string({ maxLength: 20 }), fc.double()),
      ),
    );
    fc.assert(
      fc.property(anything, (facts) => {
        const { report } = nextReport(initialReporter(undefined), facts, 0);
        expect(nodeMethods["shadow.report"].params.safeParse(report).error).toBeUndefined();
      }),
    );
  });
});

/** A control plane that stores one version and applies only reports based on it. */
class Holder {
  version = 0;
  facts: ShadowMap = {};

  take(report: ShadowReport): "ok" | "out-of-sync" {
    if (report.base !== 0 && report.base !== this.version) return "out-of-sync";
    this.facts = applyReport(this.facts, report);
    this.version = report.version;
    return "ok";
  }
}

/** Returns a reader's copy after this report. */
function applyReport(held: ShadowMap, report: ShadowReport): ShadowMap {
  const gone = new Set(report.unset);
  const kept = report.base === 0 ? [] : Object.entries(held).filter(([key]) => !gone.has(key));
  return Object.fromEntries([...kept, ...Object.entries(report.set)]);
}

const factsOf = fc.dictionary(
  fc.constantFrom("a", "b", "nic.eth0.ip", "nic.eth0.100.ip", "features"),
  fc.oneof(fc.constantFrom("x", "y", ""), fc.nat(3), fc.dictionary(fc.constantFrom("f", "g"), fc.boolean())),
);
const happening = fc.oneof(
  fc.record({ kind: fc.constant("facts" as const), facts: factsOf }),
  fc.record({
    kind: fc.constantFrom("deliver", "lose-report", "lose-answer", "restart", "reconnect", "forget" as const),
  }),
);

test("after any loss and restart, the control plane ends with the facts", () => {
  fc.assert(
    fc.property(fc.array(happening, { maxLength: 40 }), factsOf, (story, last) => {
      const holder = new Holder();
      let state = initialReporter(undefined);
      let facts: ShadowMap = {};
      let now = 0;
      let inFlight: ShadowReport | undefined;
      const used = new Set<number>();
      const deliver = (isAnswered: boolean): void => {
        const step = inFlight === undefined ? sendNow(state, facts, now) : { state, report: inFlight, now };
        ({ state, now } = step);
        inFlight = undefined;
        if (step.report === undefined) return;
        const answer = holder.take(step.report);
        if (!isAnswered) state = reportLost(state);
        else state = answer === "ok" ? reportAcknowledged(state, step.report.version) : outOfSync(state);
      };
      for (const event of story) {
        now += 700;
        switch (event.kind) {
          case "facts": {
            facts = event.facts;
            const step = nextReport(state, facts, now);
            state = step.state;
            if (step.report === undefined) break;
            expect(used.has(step.report.version)).toBe(false);
            used.add(step.report.version);
            inFlight = step.report;
            break;
          }
          case "lose-report":
            state = reportLost(state);
            inFlight = undefined;
            break;
          case "restart":
            state = sessionBegan(initialReporter(state.acknowledged), holder.version);
            inFlight = undefined;
            used.clear();
            break;
          case "reconnect":
            state = sessionBegan(state, holder.version);
            inFlight = undefined;
            break;
          case "forget":
            holder.version = 0;
            holder.facts = {};
            break;
          case "deliver":
          case "lose-answer":
            deliver(event.kind === "deliver");
        }
      }
      facts = last;
      state = sessionBegan(state, holder.version);
      inFlight = undefined;
      for (let count = 0; count < 3; count += 1) deliver(true);
      expect(holder.facts).toEqual(facts);
    }),
    { numRuns: runs(500) },
  );
});
