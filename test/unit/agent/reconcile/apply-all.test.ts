import { describe, expect, test } from "vitest";
import { reconciler, type Section } from "../../../../src/agent/reconcile/section.ts";
import { whyOf } from "../../../../src/agent/reconcile/section-status.ts";
import { HostError } from "../../../../src/errors.ts";
import {
  MemoryMachine,
  modelSection,
  type ModelOptions,
  type ModelStep,
} from "../../../support/reconcile/model-section.ts";
import { waitFor } from "../../../support/wait-for.ts";
import { engineRig } from "./rig.ts";

type Model = ReadonlyMap<string, string>;

/** A model that applies all steps or none, and records their number. */
function atOnce(options: ModelOptions = {}) {
  const machine = new MemoryMachine();
  const blows: number[] = [];
  const section: Section<Model, Model, ModelStep> = {
    ...modelSection(machine, options),
    async applyAll(steps, signal) {
      blows.push(steps.length);
      await machine.before("", signal);
      for (const { kind, subject, value } of steps) {
        if (kind === "set") machine.values.set(subject, value);
        else machine.values.delete(subject);
      }
    },
  };
  return { machine, blows, section: reconciler(section) };
}

describe("a section that applies its steps in one call", () => {
  test("gets all of them in one call, and none when there is nothing to do", async () => {
    const { machine, blows, section } = atOnce();
    machine.values.set("old", "x");
    const rig = engineRig([section]);
    rig.engine.start();
    await rig.want({ model: { a: "1", b: "2" } });
    expect([blows, rig.standing().steps, rig.standing().outcome.state]).toEqual([[3], 3, "converged"]);
    await rig.want({ model: { a: "1", b: "2" } });
    expect([blows, rig.standing().steps]).toEqual([[3], 0]);
    expect(Object.fromEntries(machine.values)).toEqual({ a: "1", b: "2" });
  });

  test("gets them one by one when one of them is guarded", async () => {
    const { machine, blows, section } = atOnce({ isGuarded: (subject) => subject === "b" });
    const rig = engineRig([section]);
    rig.engine.start();
    await rig.want({ model: { a: "1", b: "2" } });
    expect(blows).toEqual([]);
    expect(machine.values.size).toBe(2);
    await rig.want({ model: { a: "2", b: "2" } });
    expect(blows).toEqual([1]);
  });

  test("that fails is reported as a whole, keeps the reasons of rejected items, and is retried", async () => {
    const { machine, section } = atOnce();
    const other = new MemoryMachine();
    const rig = engineRig([section, reconciler(modelSection(other, { name: "other" }))]);
    machine.before = () => {
      throw new HostError("overlay-failed", "the overlay went");
    };
    rig.engine.start();
    await rig.want({ model: { a: "1", b: "2", c: 7 }, other: { a: "1" } });
    const reasons = whyOf(rig.engine.standings).map(({ section, item, code }) => [section, item, code]);
    expect(reasons).toEqual([
      ["model", undefined, "overlay-failed"],
      ["model", "model.c", "invalid"],
    ]);
    expect([rig.standing().steps, machine.values.size, other.values.size]).toEqual([0, 0, 1]);
    machine.before = () => undefined;
    await rig.clock.advance(2000);
    await rig.engine.idle();
    expect([rig.standing().outcome.state, machine.values.size]).toEqual(["converged", 2]);
  });

  test("that takes too long fails with its name", async () => {
    const { machine, blows, section } = atOnce();
    const rig = engineRig([section]);
    machine.before = () => new Promise(() => undefined);
    rig.engine.start();
    const wanted = rig.want({ model: { a: "1" } });
    await waitFor("it has begun", () => blows.length === 1);
    await rig.clock.advance(30_000);
    await wanted;
    expect(rig.standing().outcome).toMatchObject({ state: "failed", error: { code: "timeout" } });
  });

  test("does not start once something newer is desired", async () => {
    const { machine, blows, section } = atOnce({ name: "second" });
    const first = new MemoryMachine();
    const rig = engineRig([reconciler(modelSection(first, { name: "first" })), section]);
    first.after = () => {
      first.after = () => undefined;
      rig.engine.set({ version: { node: 9 }, config: { first: { a: "1" }, second: { b: "2" } }, isActive: true });
    };
    rig.engine.start();
    await rig.want({ first: { a: "1" }, second: { b: "1", c: "1" } });
    expect(blows).toEqual([1]);
    expect(Object.fromEntries(machine.values)).toEqual({ b: "2" });
  });

  test("tolerates an open checkpoint: the steps of others are rolled back, and it continues", async () => {
    const { machine, section } = atOnce({ name: "middle" });
    const [before, after] = [new MemoryMachine(), new MemoryMachine()];
    const isGuarded = (): boolean => true;
    before.values.set("a", "old");
    after.values.set("z", "old");
    const rig = engineRig([
      reconciler(modelSection(before, { name: "before", isGuarded })),
      section,
      reconciler(modelSection(after, { name: "after", isGuarded })),
    ]);
    let refusals = 1;
    after.before = () => {
      refusals -= 1;
      if (refusals === 0) throw new HostError("injected", "injected");
    };
    rig.engine.start();
    const marks: boolean[] = [];
    machine.before = async () => void marks.push(await rig.checkpoint.isPending());
    await rig.want({ before: { a: "new" }, middle: { b: "new", c: "new" }, after: { z: "new" } });
    expect(marks[0]).toBe(true);
    expect(rig.standing("after").outcome).toMatchObject({ state: "failed", error: { code: "injected" } });
    expect(after.values.get("z")).toBe("old");
    for (let tries = 0; tries < 5; tries += 1) {
      await rig.clock.advance(5000);
      await rig.engine.idle();
    }
    for (const name of ["before", "middle", "after"]) expect(rig.standing(name).outcome.state).toBe("converged");
    expect([before.values.get("a"), machine.values.size, after.values.get("z")]).toEqual(["new", 2, "new"]);
    expect(await rig.checkpoint.isPending()).toBe(false);
  });

  test("that fails in an open checkpoint leaves it to be confirmed by the others", async () => {
    const { machine, section } = atOnce({ name: "middle" });
    const guarded = new MemoryMachine();
    const rig = engineRig([section, reconciler(modelSection(guarded, { name: "guarded", isGuarded: () => true }))]);
    machine.before = () => {
      throw new HostError("injected", "injected");
    };
    rig.engine.start();
    await rig.want({ middle: { b: "new" }, guarded: { z: "new" } });
    expect(rig.standing("middle").outcome.state).toBe("failed");
    expect([rig.standing("guarded").outcome.state, guarded.values.get("z")]).toEqual(["converged", "new"]);
    expect(await rig.checkpoint.isPending()).toBe(false);
  });
});
