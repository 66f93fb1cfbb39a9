import { describe, expect, test } from "vitest";
import { reconciler } from "../../../../src/agent/reconcile/section.ts";
import { HostError } from "../../../../src/errors.ts";
import { MemoryMachine, modelSection, type ModelOptions } from "../../../support/reconcile/model-section.ts";
import { engineRig } from "./rig.ts";

const NAMES = ["first", "second", "third"];

/** Three sections that record their steps in order. */
function setUp(options: Partial<Record<string, ModelOptions>> = {}) {
  const done: string[] = [];
  const machines = new Map(NAMES.map((name) => [name, new MemoryMachine()]));
  const machineOf = (name: string): MemoryMachine => machines.get(name) ?? new MemoryMachine();
  for (const [name, machine] of machines) machine.before = (subject) => void done.push(`${name}.${subject}`);
  const rig = engineRig(NAMES.map((name) => reconciler(modelSection(machineOf(name), { name, ...options[name] }))));
  rig.engine.start();
  return {
    ...rig,
    machineOf,
    /** Returns the steps that apply a configuration. */
    want: async (config: Readonly<Record<string, unknown>>): Promise<readonly string[]> => {
      done.length = 0;
      await rig.want(config);
      return [...done];
    },
    there: () => Object.fromEntries(NAMES.map((name) => [name, Object.fromEntries(machineOf(name).values)])),
  };
}

const all = (value: string) => Object.fromEntries(NAMES.map((name) => [name, { [value]: value }]));

describe("the order of a pass", () => {
  test("creates from the first section to the last, and removes from the last to the first", async () => {
    const { want, standing } = setUp();
    expect(await want(all("a"))).toEqual(["first.a", "second.a", "third.a"]);
    expect(await want(all("b"))).toEqual(["third.a", "second.a", "first.a", "first.b", "second.b", "third.b"]);
    for (const name of NAMES) expect(standing(name)).toMatchObject({ outcome: { state: "converged" }, steps: 2 });
    expect(await want({})).toEqual(["third.b", "second.b", "first.b"]);
    expect(await want({})).toEqual([]);
    expect(NAMES.map((name) => standing(name).steps)).toEqual([0, 0, 0]);
  });

  test("keeps the steps of a section together if no other section has any", async () => {
    const { want, machineOf } = setUp();
    await want(all("a"));
    let polls = 0;
    const machine = machineOf("second");
    const read = machine.read.bind(machine);
    machine.read = () => {
      polls += 1;
      return read();
    };
    expect(await want({ ...all("a"), second: { b: "1" } })).toEqual(["second.a", "second.b"]);
    // Once to plan, and once to verify.
    expect(polls).toBe(2);
  });

  test("removes only what no later section needs, if a removal depends on that", async () => {
    const { want, machineOf, there, standing } = setUp();
    await want(all("a"));
    const refuseWhileUsed = machineOf("first").before;
    machineOf("first").before = (subject, signal) => {
      if (machineOf("third").values.has(subject)) throw new HostError("in-use", `${subject} is used`);
      return refuseWhileUsed(subject, signal);
    };
    await want({});
    expect(there()).toEqual({ first: {}, second: {}, third: {} });
    expect(standing("first").outcome.state).toBe("converged");
  });

  test("counts a failing removal once, continues, and retries it later", async () => {
    const { want, machineOf, engine, clock, standing } = setUp();
    await want({ first: { a: "1" }, third: { a: "1", b: "1" } });
    const { before } = machineOf("third");
    let tries = 0;
    machineOf("third").before = (subject) => {
      if (subject !== "a") return before(subject, undefined);
      tries += 1;
      throw new HostError("in-use", "a is used");
    };
    expect(await want({ third: { c: "1" } })).toEqual(["third.b", "first.a", "third.c"]);
    expect(tries).toBe(1);
    expect(standing("third")).toMatchObject({
      outcome: { state: "failed", step: { kind: "remove", subject: "a" } },
      issues: [{ path: "third.a", code: "in-use" }],
      steps: 2,
    });
    machineOf("third").before = before;
    await clock.advance(1001);
    await engine.idle();
    expect(standing("third")).toMatchObject({ outcome: { state: "converged" }, failures: 0 });
  });

  test("reverts, as drift, what was added and what is missing, each counted once", async () => {
    const { want, machineOf, engine, standing } = setUp();
    await want(all("a"));
    machineOf("second").values.set("stray", "x");
    machineOf("second").values.delete("a");
    engine.reevaluate("test");
    await engine.idle();
    expect(standing("second").drift).toMatchObject({ count: 1, what: ["remove stray", "set a"] });
  });
});

describe("a guarded pass", () => {
  const guarded = { first: { isGuarded: () => true } };

  test("has the undo of removals and of external changes on disk before the first removal", async () => {
    const { want, machineOf, checkpoint } = setUp(guarded);
    await want(all("a"));
    const pending: boolean[] = [];
    for (const name of NAMES) machineOf(name).before = async () => void pending.push(await checkpoint.isPending());
    await want(all("b"));
    expect(pending).toEqual([true, true, true, true, true, true]);
    expect(await checkpoint.isPending()).toBe(false);
  });

  test("removes nothing of a section whose guarded steps cannot be covered", async () => {
    const { want, checkpoint, there, standing } = setUp({ first: { isGuarded: (subject) => subject === "b" } });
    await want(all("a"));
    checkpoint.open = () => Promise.reject(new HostError("disk-full", "full"));
    await want(all("b"));
    expect(there()).toEqual({ first: { a: "a" }, second: { b: "b" }, third: { b: "b" } });
    expect(standing("first").outcome).toMatchObject({ state: "failed", error: { code: "disk-full" } });
  });

  test.each(["first.a", "first.b"])("is rolled back completely when the guarded step at %s fails", async (failing) => {
    const { want, machineOf, there, standing, engine } = setUp(guarded);
    await want(all("a"));
    const [name = "", subject] = failing.split(".");
    const machine = machineOf(name);
    const before = machine.before.bind(machine);
    let isFailing = true;
    machineOf(name).before = (at, signal) => {
      if (at !== subject || !isFailing) return before(at, signal);
      isFailing = false;
      throw new HostError("refused", "no");
    };
    const seen: unknown[] = [];
    machineOf("second").after = () => void seen.push(there());
    await want(all("b"));
    expect(seen[0]).toEqual({ first: { a: "a" }, second: {}, third: {} });
    // The others are applied without the section whose step failed.
    expect(there()).toEqual({ first: { a: "a" }, second: { b: "b" }, third: { b: "b" } });
    expect(standing("first").outcome).toMatchObject({ state: "failed", step: { subject } });
    engine.reevaluate("test");
    await engine.idle();
    expect(there()).toEqual({ first: { b: "b" }, second: { b: "b" }, third: { b: "b" } });
  });
});
