import { expect, test } from "vitest";
import { reconciler, type Issue } from "../../../../src/agent/reconcile/section.ts";
import { HostError } from "../../../../src/errors.ts";
import { ScriptedProver } from "../../../support/reconcile/commit.ts";
import { MemoryMachine, modelSection } from "../../../support/reconcile/model-section.ts";
import { advanceUntil } from "../../../support/advance-until.ts";
import { engineRig } from "./rig.ts";

type Values = ReadonlyMap<string, string>;

const NOBODY = [{ target: "control plane 192.0.2.1:443", message: "connection timed out" }];
const NO_LEASE: Issue = { path: "model", code: "no-lease", message: "no lease has come" };
const MOST_FOLLOWS = 16;

/**
 * An engine whose section has a `route` by the machine's lease as soon as `a` is `leased`; `a: old` is confirmed, and there is no lease.
 */
async function rig({ seconds = 60 } = {}) {
  const machine = new MemoryMachine();
  const prover = new ScriptedProver();
  const surroundings: { lease: string | undefined } = { lease: undefined };
  const model = modelSection(machine, { isGuarded: () => true });
  const withLease = (actual: Values, lease: string | undefined): Values => {
    const others = [...actual].filter(([name]) => name !== "lease");
    return new Map(lease === undefined ? others : [...others, ["lease", lease]]);
  };
  const wished = (desired: Values, actual: Values): Values => {
    const lease = actual.get("lease");
    return desired.get("a") === "leased" && lease !== undefined ? new Map([...desired, ["route", lease]]) : desired;
  };
  const section = reconciler({
    ...model,
    observe: async () => withLease(await machine.read(), surroundings.lease),
    plan: (desired, actual) => model.plan(wished(desired, actual), withLease(actual, undefined)),
    asSurrounded: (actual, before) => withLease(actual, before.get("lease")),
    unproven: (desired, actual) => (desired.get("a") === "leased" && !actual.has("lease") ? [NO_LEASE] : []),
  });
  const rollbacks: string[] = [];
  const one = engineRig([section], {
    commitOptions: {
      prover,
      request: () => ({ mode: "save", seconds, isLocal: false }),
      onRollback: ({ code, evidence }) => void rollbacks.push(`${code}: ${evidence}`),
    },
  });
  one.engine.start();
  await one.want({ model: { a: "old" } });
  expect([machine.values.get("a"), one.commit.window]).toEqual(["old", undefined]);
  const until = (what: string, holds: () => boolean): Promise<boolean> => advanceUntil(what, one.clock, holds);
  return { ...one, machine, prover, surroundings, rollbacks, until, has: () => Object.fromEntries(machine.values) };
}

test("a change without its means of verification is not verified by targets reached without it", async () => {
  const one = await rig();
  const wanted = one.want({ model: { a: "leased" } });
  await one.until("everybody is reached", () => one.prover.attempts > 5);
  expect(one.commit.window?.state).toBe("proving");
  expect(one.commit.unreached).toEqual([{ target: "model", message: NO_LEASE.message, isHere: true }]);
  await one.until("it is rolled back", () => one.rollbacks.length > 0);
  await wanted;
  expect(one.has()).toEqual({ a: "old" });
  expect(one.rollbacks).toEqual([`not-proven: model: ${NO_LEASE.message}`]);
});

test("steps that become due by external changes belong to the change, which is verified once more after them", async () => {
  const one = await rig();
  const wanted = one.want({ model: { a: "leased" } });
  await one.until("it is being proven", () => one.prover.attempts > 1);
  one.surroundings.lease = "192.0.2.9";
  await one.until("the route is there", () => one.machine.values.has("route"));
  expect(one.commit.window?.state).toBe("proving");
  expect(one.commit.unreached).toMatchObject([{ target: "model", isHere: true }]);
  const { attempts } = one.prover;
  await one.until("it is confirmed", () => one.commit.window === undefined);
  await wanted;
  expect(one.prover.attempts).toBe(attempts + 1);
  expect([one.has(), one.rollbacks]).toEqual([{ a: "leased", route: "192.0.2.9" }, []]);
  expect(one.standing().outcome).toEqual({ state: "converged" });
});

test("rolls back such steps with the change", async () => {
  const one = await rig();
  const wanted = one.want({ model: { a: "leased" } });
  await one.until("it is being proven", () => one.prover.attempts > 1);
  one.surroundings.lease = "192.0.2.9";
  const changed: string[] = [];
  one.machine.after = (subject) => {
    one.prover.unreached = NOBODY;
    changed.push(subject);
  };
  await one.until("the route is there", () => one.machine.values.has("route"));
  await one.until("it is rolled back", () => one.rollbacks.length > 0);
  await wanted;
  expect(one.has()).toEqual({ a: "old" });
  // Last in, first out, as only happens when its undo is stored with the others.
  expect(changed).toEqual(["route", "route", "a"]);
});

test("a failing step of this kind rolls the change back, with the step", async () => {
  const one = await rig();
  const wanted = one.want({ model: { a: "leased" } });
  await one.until("it is being proven", () => one.prover.attempts > 1);
  one.machine.before = (subject) => {
    if (subject === "route") throw new HostError("exec-failed", "ip: no such device");
  };
  one.surroundings.lease = "192.0.2.9";
  await one.until("it is rolled back", () => one.rollbacks.length > 0);
  one.machine.before = () => undefined;
  await wanted;
  expect(one.rollbacks[0]).toMatch(/^step-failed: .*no such device/);
});

test("external changes that never stop do not extend the verification indefinitely, and are handled after it", async () => {
  // The fake clock runs ahead of a busy machine's files.
  const one = await rig({ seconds: 3600 });
  const wanted = one.want({ model: { a: "leased" } });
  await one.until("it is being proven", () => one.prover.attempts > 1);
  let follows = 0;
  one.machine.after = (subject) => {
    if (subject === "route" && one.commit.window !== undefined) follows += 1;
  };
  one.prover.onAttempt = () => {
    one.surroundings.lease = `192.0.2.${one.prover.attempts}`;
  };
  await one.until("it is confirmed", () => one.commit.window === undefined);
  await wanted;
  expect([follows, one.rollbacks]).toEqual([MOST_FOLLOWS, []]);
  expect(one.has()["route"]).not.toBe(one.surroundings.lease);
  one.engine.reevaluate("test");
  await one.engine.idle();
  expect(one.has()).toEqual({ a: "leased", route: one.surroundings.lease });
});
