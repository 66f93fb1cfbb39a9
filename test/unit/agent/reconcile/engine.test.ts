import { describe, expect, test } from "vitest";
import { reconciler } from "../../../../src/agent/reconcile/section.ts";
import { whyOf } from "../../../../src/agent/reconcile/section-status.ts";
import { HostError } from "../../../../src/errors.ts";
import { ScriptedProver } from "../../../support/reconcile/commit.ts";
import { settle } from "../../../support/fake-clock.ts";
import { MemoryMachine, modelSection } from "../../../support/reconcile/model-section.ts";
import { advanceUntil } from "../../../support/advance-until.ts";
import { waitFor } from "../../../support/wait-for.ts";
import { engineRig } from "./rig.ts";

function refuse(subject: string) {
  return (one: string) => {
    if (one === subject) throw new HostError("port-taken", `${subject} is taken`);
  };
}

describe("a pass", () => {
  test("creates what is desired, and the same document again has zero steps", async () => {
    const machine = new MemoryMachine();
    const rig = engineRig([reconciler(modelSection(machine))]);
    rig.engine.start();
    machine.values.set("old", "x");
    await rig.want({ model: { a: "1", b: "2" } });
    expect(Object.fromEntries(machine.values)).toEqual({ a: "1", b: "2" });
    expect(rig.standing()).toMatchObject({ outcome: { state: "converged" }, steps: 3, version: { node: 1 } });
    let changes = 0;
    machine.before = () => {
      changes += 1;
    };
    await rig.want({ model: { a: "1", b: "2" } });
    expect(changes).toBe(0);
    expect(rig.standing()).toMatchObject({ outcome: { state: "converged" }, steps: 0, version: { node: 2 } });
  });

  test("removes what a section created when the document no longer has it", async () => {
    const machine = new MemoryMachine();
    const rig = engineRig([reconciler(modelSection(machine))]);
    rig.engine.start();
    await rig.want({ model: { a: "1" } });
    await rig.want({});
    expect(machine.values.size).toBe(0);
    expect(rig.standing().outcome.state).toBe("converged");
  });

  test("empties what needs the data plane while the node is inactive, and nothing else", async () => {
    const [plane, other] = [new MemoryMachine(), new MemoryMachine()];
    const rig = engineRig([
      reconciler(modelSection(plane, { name: "plane", needsDataPlane: true })),
      reconciler(modelSection(other, { name: "other" })),
    ]);
    rig.engine.start();
    const config = { plane: { a: "1" }, other: { a: "1" } };
    await rig.want(config);
    await rig.want(config, false);
    expect([plane.values.size, other.values.size]).toEqual([0, 1]);
    await rig.want(config, true);
    expect(plane.values.size).toBe(1);
  });

  test("applies the valid items and names the rejected ones", async () => {
    const machine = new MemoryMachine();
    const rig = engineRig([reconciler(modelSection(machine))]);
    rig.engine.start();
    await rig.want({ model: { a: "1", b: 7 } });
    expect(Object.fromEntries(machine.values)).toEqual({ a: "1" });
    expect(rig.standing()).toMatchObject({ outcome: { state: "converged" }, issues: [{ path: "model.b" }] });
    expect(whyOf(rig.engine.standings)).toMatchObject([{ section: "model", item: "model.b", code: "invalid" }]);
  });

  test("leaves the machine unchanged when nothing of a section is valid", async () => {
    const machine = new MemoryMachine();
    const rig = engineRig([reconciler(modelSection(machine))]);
    rig.engine.start();
    await rig.want({ model: { a: "1" } });
    await rig.want({ model: 7 });
    expect(machine.values.size).toBe(1);
    expect(rig.standing()).toMatchObject({ outcome: { state: "rejected" }, version: { node: 2 } });
    expect(rig.standing().nextAttempt).toBeUndefined();
  });

  test("continues past a failing item and a failing section", async () => {
    const [first, second] = [new MemoryMachine(), new MemoryMachine()];
    first.before = refuse("b");
    const rig = engineRig([
      reconciler(modelSection(first, { name: "first" })),
      reconciler({
        ...modelSection(new MemoryMachine(), { name: "blind" }),
        observe: () => Promise.reject(new Error("no")),
      }),
      reconciler(modelSection(second, { name: "second" })),
    ]);
    rig.engine.start();
    await rig.want({ first: { a: "1", b: "2", c: "3" }, second: { a: "1" } });
    expect([...first.values.keys()]).toEqual(["a", "c"]);
    expect([...second.values.keys()]).toEqual(["a"]);
    expect(rig.standing("first")).toMatchObject({
      outcome: { state: "failed", step: { kind: "set", subject: "b" } },
      issues: [{ path: "first.b", code: "port-taken" }],
    });
    expect(whyOf(rig.engine.standings)).toMatchObject([
      { section: "first", item: "first.b", code: "port-taken" },
      { section: "blind", code: "internal" },
    ]);
  });

  test("reports diverged when a step had no effect, and pending when an item waits", async () => {
    const rig = engineRig([
      reconciler({ ...modelSection(new MemoryMachine(), { name: "idle" }), apply: () => Promise.resolve() }),
      reconciler(
        modelSection(new MemoryMachine(), {
          name: "waiting",
          waits: () => [{ path: "waiting.a", code: "no-link", message: "eth9 is absent" }],
        }),
      ),
    ]);
    rig.engine.start();
    await rig.want({ idle: { a: "1" }, waiting: { a: "1" } });
    expect(rig.standing("idle").outcome).toMatchObject({ state: "diverged", remaining: [{ subject: "a" }] });
    expect(rig.standing("waiting").outcome).toEqual({ state: "pending", reason: "eth9 is absent" });
    expect(whyOf(rig.engine.standings).map(({ code }) => code)).toEqual(["diverged", "no-link"]);
  });

  test("limits the time of a step that hangs and ignores its cancellation", async () => {
    const machine = new MemoryMachine();
    let hasBegun = false;
    machine.before = () => {
      hasBegun = true;
      return new Promise(() => undefined);
    };
    const rig = engineRig([reconciler({ ...modelSection(machine), deadlineMs: 500 })]);
    rig.engine.start();
    const done = rig.want({ model: { a: "1", b: "2" } });
    await waitFor("the step has begun", () => hasBegun);
    await rig.clock.advance(600);
    await done;
    expect(rig.standing().outcome).toMatchObject({ state: "failed", error: { code: "timeout" } });
  });
});

describe("time", () => {
  test("retries with backoff, and at once when the awaited event is signalled", async () => {
    const machine = new MemoryMachine();
    const tries: number[] = [];
    machine.before = () => {
      tries.push(rig.clock.elapsed());
      throw new HostError("port-taken", "taken");
    };
    const rig = engineRig([reconciler(modelSection(machine))]);
    rig.engine.start();
    await rig.want({ model: { a: "1" } });
    expect(rig.standing().nextAttempt).toBe(rig.clock.now() + 1000);
    for (let i = 0; i < 20; i += 1) await rig.clock.advance(1000);
    expect(tries).toEqual([0, 1000, 3000, 7000, 15_000]);
    machine.before = () => undefined;
    rig.engine.reevaluate("port freed", ["model"]);
    await rig.engine.idle();
    expect(rig.standing()).toMatchObject({ outcome: { state: "converged" }, failures: 0 });
  });

  test.each([86_400_000, -86_400_000])("shows correct times right after the clock was set by %i ms", async (ms) => {
    const machine = new MemoryMachine();
    machine.before = () => {
      throw new HostError("port-taken", "taken");
    };
    const rig = engineRig([reconciler(modelSection(machine))]);
    rig.engine.start();
    await rig.want({ model: { a: "1", b: 7 } });
    await rig.clock.advance(400);
    rig.clock.setWall(rig.clock.now() + ms);
    const [now, standing] = [rig.clock.now(), rig.standing()];
    expect(standing).toMatchObject({ since: now - 400, lastAttempt: now - 400, nextAttempt: now + 600 });
    expect([...new Set(standing.sinces.values())]).toEqual([now - 400]);
    expect(rig.standing()).toBe(standing);
    for (let i = 0; i < 2; i += 1) await rig.clock.advance(1000);
    expect(rig.standing().failures).toBe(2);
  });

  test("never waits longer than five minutes", async () => {
    const machine = new MemoryMachine();
    let last = 0;
    let longest = 0;
    machine.before = () => {
      longest = Math.max(longest, rig.clock.elapsed() - last);
      last = rig.clock.elapsed();
      throw new HostError("port-taken", "taken");
    };
    const rig = engineRig([reconciler(modelSection(machine))]);
    rig.engine.start();
    await rig.want({ model: { a: "1" } });
    for (let i = 0; i < 1500; i += 1) await rig.clock.advance(1000);
    expect(longest).toBe(300_000);
  });

  test("finds drift by timer and on request, reverts and counts it", async () => {
    const machine = new MemoryMachine();
    const rig = engineRig([reconciler(modelSection(machine))]);
    rig.engine.start();
    await rig.want({ model: { a: "1", b: "2" } });
    machine.values.delete("a");
    await rig.clock.advance(61_000);
    await rig.engine.idle();
    expect(machine.values.get("a")).toBe("1");
    expect(rig.standing().drift).toMatchObject({ count: 1, what: ["set a"] });
    machine.values.set("b", "9");
    rig.engine.reevaluate("kernel event");
    await rig.engine.idle();
    expect(rig.standing().drift).toMatchObject({ count: 2, what: ["set b"] });
    await rig.want({ model: { a: "2" } });
    expect(rig.standing().drift.count).toBe(2);
  });

  test("keeps one timer while it is idle, and none once it is closed", async () => {
    const rig = engineRig([reconciler(modelSection(new MemoryMachine()))]);
    rig.engine.start();
    await rig.want({ model: { a: "1" } });
    await settle();
    expect(rig.clock.pendingTimers).toBe(1);
    await rig.engine.close();
    expect(rig.clock.pendingTimers).toBe(0);
  });
});

describe("a newer version", () => {
  test("stops the pass between steps, and the next begins by observing", async () => {
    const machine = new MemoryMachine();
    const seen: string[] = [];
    const rig = engineRig([reconciler(modelSection(machine))]);
    machine.after = (subject) => {
      seen.push(subject);
      if (subject === "b")
        rig.engine.set({ version: { node: 9 }, config: { model: { a: "1", z: "1" } }, isActive: true });
    };
    rig.engine.start();
    await rig.want({ model: { a: "1", b: "2", c: "3" } });
    expect(seen).toEqual(["a", "b", "b", "z"]);
    expect(Object.fromEntries(machine.values)).toEqual({ a: "1", z: "1" });
    expect(rig.standing()).toMatchObject({ version: { node: 9 }, drift: { count: 0 } });
    expect(rig.reports()).toBe(1);
  });
});

describe("a guarded pass", () => {
  const guarded = { isGuarded: () => true };

  test("has the undo of every step on disk before the first, and nothing after the last", async () => {
    const machine = new MemoryMachine();
    machine.values.set("a", "0");
    const rig = engineRig([reconciler(modelSection(machine, guarded))]);
    const pending: boolean[] = [];
    machine.before = async () => void pending.push(await rig.checkpoint.isPending());
    rig.engine.start();
    await rig.want({ model: { a: "1", b: "2" } });
    expect(pending).toEqual([true, true]);
    expect(await rig.checkpoint.isPending()).toBe(false);
  });

  test("rolls everything back when a guarded step fails, and continues without that section", async () => {
    const [wire, plain] = [new MemoryMachine(), new MemoryMachine()];
    wire.values.set("a", "old");
    let refusals = 1;
    wire.before = (subject) => {
      if (subject !== "b" || refusals === 0) return;
      refusals -= 1;
      throw new HostError("refused", "no");
    };
    const rig = engineRig([
      reconciler(modelSection(plain, { name: "plain" })),
      reconciler(modelSection(wire, { name: "wire", ...guarded })),
    ]);
    rig.engine.start();
    await rig.want({ plain: { p: "1" }, wire: { a: "new", b: "new" } });
    expect(Object.fromEntries(wire.values)).toEqual({ a: "old" });
    expect(Object.fromEntries(plain.values)).toEqual({ p: "1" });
    expect(rig.standing("wire").outcome).toMatchObject({ state: "failed", step: { subject: "b" } });
    expect(rig.standing("plain").outcome.state).toBe("converged");
  });

  test("rolls everything back when it is not confirmed", async () => {
    const prover = new ScriptedProver();
    prover.unreached = [{ target: "control plane", message: "nobody answers" }];
    const machine = new MemoryMachine();
    machine.values.set("a", "old");
    const rig = engineRig([reconciler(modelSection(machine, guarded))], {
      commitOptions: { prover },
    });
    rig.engine.start();
    const wanted = rig.want({ model: { a: "new" } });
    await waitFor("the change is made", () => machine.values.get("a") === "new");
    await advanceUntil("the window is over", rig.clock, () => machine.values.get("a") === "old");
    await wanted;
    expect(machine.values.get("a")).toBe("old");
    expect(rig.standing().outcome).toMatchObject({ state: "failed", error: { code: "not-confirmed" } });
  });

  test("does not start when the disk refuses the checkpoint; what needs none continues", async () => {
    const [wire, plain] = [new MemoryMachine(), new MemoryMachine()];
    const rig = engineRig([
      reconciler(modelSection(plain, { name: "plain" })),
      reconciler(modelSection(wire, { name: "wire", ...guarded })),
    ]);
    rig.checkpoint.open = () => Promise.reject(new HostError("disk-full", "full"));
    rig.engine.start();
    await rig.want({ plain: { p: "1" }, wire: { a: "1" } });
    expect([plain.values.size, wire.values.size]).toEqual([1, 0]);
    expect(rig.standing("wire").outcome).toMatchObject({ state: "failed", error: { code: "disk-full" } });
  });

  test("that a stop interrupted is rolled back at the next start, before anything else", async () => {
    const machine = new MemoryMachine();
    machine.values.set("a", "old");
    const rig = engineRig([reconciler(modelSection(machine, guarded))]);
    machine.before = (subject) => (subject === "b" ? new Promise(() => undefined) : undefined);
    rig.engine.start();
    rig.engine.set({ version: { node: 1 }, config: { model: { a: "new", b: "new" } }, isActive: true });
    await waitFor("the first step is done", () => machine.values.get("a") === "new");
    await rig.engine.close();
    expect(await rig.checkpoint.isPending()).toBe(true);
    machine.before = () => undefined;
    const next = engineRig([reconciler(modelSection(machine, guarded))], { checkpoint: rig.checkpoint });
    next.engine.start();
    await next.engine.idle();
    expect(Object.fromEntries(machine.values)).toEqual({ a: "old" });
    expect(await rig.checkpoint.isPending()).toBe(false);
  });

  test("whose rollback fails is tried three times, then reported", async () => {
    const machine = new MemoryMachine();
    const section = reconciler(modelSection(machine, guarded));
    const rig = engineRig([section]);
    await rig.checkpoint.open([{ section: "model", undo: { kind: "nonsense" } }], 0);
    await rig.checkpoint.mark(0);
    rig.engine.start();
    for (let i = 0; i < 10 && rig.faults.length === 0; i += 1) {
      await rig.engine.idle();
      await rig.clock.advance(1000);
    }
    await rig.engine.idle();
    expect(rig.faults).toEqual(["restore-failed"]);
    expect(await rig.checkpoint.isPending()).toBe(false);
    await rig.want({ model: { a: "1" } });
    expect(machine.values.get("a")).toBe("1");
  });
});
