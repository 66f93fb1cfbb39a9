import { describe, expect, test } from "vitest";
import { reconciler, type Issue } from "../../../../src/agent/reconcile/section.ts";
import { whyOf } from "../../../../src/agent/reconcile/section-status.ts";
import { HostError } from "../../../../src/errors.ts";
import { ScriptedProver } from "../../../support/reconcile/commit.ts";
import { MemoryMachine, modelSection } from "../../../support/reconcile/model-section.ts";
import { advanceUntil } from "../../../support/advance-until.ts";
import { waitFor } from "../../../support/wait-for.ts";
import { engineRig } from "./rig.ts";

const taken = (item: string): Issue => ({ path: `model.${item}`, code: "port-taken", message: `${item} is taken` });

/** A section whose items wait as the test sets, on a machine that can be hidden. */
function waitingRig() {
  const machine = new MemoryMachine();
  const trouble: { waits: readonly Issue[]; isBlind: boolean; isStuck: boolean } = {
    waits: [],
    isBlind: false,
    isStuck: false,
  };
  const section = modelSection(machine, { waits: () => trouble.waits });
  const rig = engineRig([
    reconciler({
      ...section,
      observe(signal) {
        if (trouble.isStuck) return new Promise(() => undefined);
        return trouble.isBlind ? Promise.reject(new HostError("overlay-failed", "gone")) : section.observe(signal);
      },
    }),
  ]);
  rig.engine.start();
  const start = rig.clock.now();
  return {
    ...rig,
    machine,
    trouble,
    /** Runs a pass after this many milliseconds. */
    lookAfter: async (ms: number): Promise<void> => {
      await rig.clock.advance(ms);
      await rig.engine.idle();
      rig.engine.reevaluate("test");
      await rig.engine.idle();
    },
    /** Returns each reason with its start, relative to the first pass. */
    sinces: () =>
      Object.fromEntries(whyOf(rig.engine.standings).map(({ item, code, since }) => [item ?? code, since - start])),
  };
}

describe("the start time of an issue", () => {
  test("is its own if it appears later, and the others keep theirs", async () => {
    const rig = waitingRig();
    rig.trouble.waits = [taken("a")];
    await rig.want({ model: { a: "1" } });
    rig.trouble.waits = [taken("b"), { ...taken("a"), message: "in other words" }];
    await rig.lookAfter(500);
    expect(rig.sinces()).toEqual({ "model.b": 500, "model.a": 0 });
    await rig.clock.advance(300);
    await rig.want({ model: { a: "1", c: 7 } });
    expect(rig.sinces()).toEqual({ "model.c": 800, "model.b": 500, "model.a": 0 });
  });

  test("survives the section's state", async () => {
    const rig = waitingRig();
    await rig.want({ model: { a: "1", bad: 7 } });
    rig.trouble.waits = [taken("a")];
    await rig.lookAfter(5000);
    expect(rig.standing().outcome.state).toBe("pending");
    expect(rig.sinces()).toEqual({ "model.bad": 0, "model.a": 5000 });
    rig.trouble.waits = [];
    await rig.lookAfter(5000);
    expect(rig.standing().outcome.state).toBe("converged");
    expect(rig.sinces()).toEqual({ "model.bad": 0 });
  });

  test("is new when a resolved issue returns", async () => {
    const rig = waitingRig();
    rig.trouble.waits = [taken("a")];
    await rig.want({ model: { a: "1" } });
    rig.trouble.waits = [];
    await rig.lookAfter(5000);
    rig.trouble.waits = [taken("a")];
    await rig.lookAfter(5000);
    expect(rig.sinces()).toEqual({ "model.a": 10_000 });
  });

  test("does not change when a read in between failed, also under another version", async () => {
    const rig = waitingRig();
    rig.trouble.waits = [taken("a")];
    await rig.want({ model: { a: "1" } });
    rig.trouble.isBlind = true;
    await rig.clock.advance(300);
    await rig.want({ model: { a: "1", b: "2" } });
    expect(rig.sinces()).toEqual({ "overlay-failed": 300 });
    rig.trouble.isBlind = false;
    await rig.lookAfter(10);
    expect(rig.sinces()).toEqual({ "model.a": 0 });
  });
});

describe("a pass that cannot observe", () => {
  test.each([["fails"], ["times out"]])("keeps the last known state when it %s", async (how) => {
    const rig = waitingRig();
    rig.trouble.waits = [taken("a")];
    await rig.want({ model: { a: "1", bad: 7 } });
    const before = rig.standing().issues;
    if (how === "fails") rig.trouble.isBlind = true;
    else rig.trouble.isStuck = true;
    rig.engine.reevaluate("test");
    for (let i = 0; i < 40; i += 1) await rig.clock.advance(1000);
    await waitFor("the pass has failed", () => rig.standing().outcome.state === "failed");
    expect(rig.standing()).toMatchObject({ rejected: 1, issues: before });
    expect(whyOf(rig.engine.standings).map(({ item }) => item)).toEqual([undefined, "model.bad", "model.a"]);
  });

  test("still reports what does not depend on the machine", async () => {
    const rig = waitingRig();
    await rig.want({ model: { bad: 7 } });
    rig.trouble.isBlind = true;
    await rig.want({ model: { worse: 7, bad: 7 } });
    expect(rig.standing().issues.map(({ path }) => path)).toEqual(["model.worse", "model.bad"]);
    await rig.want({ model: {} });
    expect(rig.standing()).toMatchObject({ rejected: 0, issues: [] });
  });

  test("a rolled back pass keeps the rejected items", async () => {
    const machine = new MemoryMachine();
    const prover = new ScriptedProver();
    prover.unreached = [{ target: "control plane", message: "nobody answers" }];
    const rig = engineRig([reconciler(modelSection(machine, { isGuarded: () => true }))], {
      commitOptions: { prover },
    });
    rig.engine.start();
    const wanted = rig.want({ model: { a: "1", bad: 7 } });
    await waitFor("the change is made", () => machine.values.size === 1);
    await advanceUntil("it is rolled back", rig.clock, () => machine.values.size === 0);
    await wanted;
    expect(rig.standing()).toMatchObject({ outcome: { state: "failed" }, rejected: 1 });
  });
});
