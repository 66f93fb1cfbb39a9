import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { CommitOptions } from "../../../../src/agent/reconcile/commit.ts";
import { reconciler } from "../../../../src/agent/reconcile/section.ts";
import { Checkpoint } from "../../../../src/checkpoint/checkpoint.ts";
import { commitFiles, type Rollback } from "../../../../src/checkpoint/commit-files.ts";
import type { WindowRequest } from "../../../../src/checkpoint/window.ts";
import { HostError } from "../../../../src/errors.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import { ScriptedProver } from "../../../support/reconcile/commit.ts";
import { FakeClock, settle } from "../../../support/fake-clock.ts";
import { MemoryMachine, modelSection } from "../../../support/reconcile/model-section.ts";
import { tempDir } from "../../../support/temp-dir.ts";
import { advanceUntil } from "../../../support/advance-until.ts";
import { waitFor } from "../../../support/wait-for.ts";
import { engineRig } from "./rig.ts";

const NOBODY = [{ target: "control plane 192.0.2.1:443", message: "connection timed out" }];

/** An engine whose only section could cut the node off; `a: old` is confirmed. */
async function rig(
  options: {
    dir?: string;
    machine?: MemoryMachine;
    clock?: FakeClock;
    checkpoint?: Checkpoint;
    commit?: Partial<CommitOptions>;
  } = {},
) {
  const { dir = join(tempDir(), "desired"), machine = new MemoryMachine(), clock = new FakeClock() } = options;
  mkdirSync(dir, { recursive: true });
  const prover = new ScriptedProver();
  const rollbacks: Rollback[] = [];
  const watched: string[] = [];
  let request: WindowRequest & { isLocal: boolean } = { mode: "save", seconds: 60, isLocal: false };
  const section = reconciler(modelSection(machine, { isGuarded: () => true }));
  const one = engineRig([section], {
    dir,
    clock,
    ...(options.checkpoint === undefined ? {} : { checkpoint: options.checkpoint }),
    commitOptions: {
      prover,
      request: () => request,
      onRollback: (report) => void rollbacks.push(report),
      watch: (_id, waitMs) => {
        watched.push(`watch ${waitMs}`);
        return Promise.resolve({ end: () => Promise.resolve(void watched.push("end")) });
      },
      ...options.commit,
    },
  });
  one.engine.start();
  const isThere = (value: string | undefined) => machine.values.get("a") === value;
  return {
    ...one,
    machine,
    prover,
    rollbacks,
    watched,
    ask: (changed: Partial<WindowRequest & { isLocal: boolean }>) => {
      request = { ...request, ...changed };
    },
    a: () => machine.values.get("a"),
    /** Waits for the value without advancing the fake clock: the writes before it take real time. */
    untilMade: (value: string) => waitFor(`a is ${value}`, () => isThere(value)),
    /** Advances the time until this value. */
    until: (value: string | undefined, stepMs = 1000) =>
      advanceUntil(`a is ${value}`, clock, () => isThere(value), stepMs),
    state: () => one.commit.window?.state,
  };
}

async function proven(options: Parameters<typeof rig>[0] = {}) {
  const one = await rig(options);
  await one.want({ model: { a: "old" } });
  expect([one.a(), one.commit.window]).toEqual(["old", undefined]);
  return one;
}

describe("a permanent change", () => {
  test("is confirmed once all targets are reached again, and its watcher ends", async () => {
    const one = await proven();
    one.watched.length = 0;
    one.prover.unreached = NOBODY;
    const wanted = one.want({ model: { a: "new" } });
    await waitFor("it is being proven", () => one.state() === "proving" && one.prover.attempts > 1);
    await one.clock.advance(5000);
    expect(one.commit.unreached).toEqual(NOBODY);
    one.prover.unreached = [];
    await advanceUntil("it is confirmed", one.clock, () => one.commit.window === undefined);
    await wanted;
    expect([one.a(), one.rollbacks, one.watched]).toEqual(["new", [], ["watch 60000", "end"]]);
    expect(one.commit.isProven("model", { a: "new" })).toBe(true);
  });

  test("is rolled back at its deadline, with the evidence, and not retried", async () => {
    const one = await proven();
    one.prover.unreached = NOBODY;
    const wanted = one.want({ model: { a: "new" } });
    await one.untilMade("new");
    await one.clock.advance(50_000);
    expect(one.a()).toBe("new");
    await one.until("old");
    await wanted;
    const evidence = "control plane 192.0.2.1:443: connection timed out";
    expect(one.rollbacks).toMatchObject([{ code: "not-proven", by: "agent", evidence, versions: { node: 2 } }]);
    await waitFor("it is refused", () => one.commit.heldChange.current?.is === "refused");
    one.prover.unreached = [];
    one.engine.reevaluate("test");
    await one.engine.idle();
    expect(one.a()).toBe("old");
    expect(one.standing().outcome).toMatchObject({ state: "failed", error: { code: "not-confirmed" } });
    // Any other desired configuration ends it.
    await one.want({ model: { a: "newer" } });
    expect(one.a()).toBe("newer");
  });

  test("whose window passes while the machine sleeps is applied again at once", async () => {
    const one = await proven();
    one.prover.unreached = NOBODY;
    const wanted = one.want({ model: { a: "new" } });
    await waitFor("it is being proven", () => one.state() === "proving" && one.prover.attempts > 1);
    one.clock.sleepMachine(60_000);
    one.prover.unreached = [];
    await one.clock.advance(1000);
    await wanted;
    await one.until("new");
    await one.engine.idle();
    expect(one.rollbacks).toMatchObject([{ code: "not-proven", isLate: true }]);
    expect(one.rollbacks[0]?.evidence).toContain("slept or was too busy");
    expect([one.a(), one.commit.heldChange.current]).toEqual(["new", undefined]);
  });

  test("whose window passes in the middle of an attempt that misses is tried again, and refused if it misses again", async () => {
    const one = await proven();
    one.prover.unreached = NOBODY;
    one.prover.onAttempt = () => {
      if (one.prover.attempts === 2) one.clock.sleepMachine(60_000);
    };
    one.prover.attempts = 0;
    const wanted = one.want({ model: { a: "new" } });
    await one.untilMade("new");
    await advanceUntil("it is rolled back twice", one.clock, () => one.rollbacks.length === 2);
    await wanted;
    await waitFor("it is refused", () => one.commit.heldChange.current?.is === "refused");
    expect(one.rollbacks.map(({ isLate, evidence }) => [isLate, evidence.split(":")[0]])).toEqual([
      [true, "the machine slept or was too busy to prove anything within 60 s"],
      [undefined, "control plane 192.0.2.1"],
    ]);
  });

  test("that is tried again must reach the gateways of its first attempt", async () => {
    const one = await proven();
    one.prover.gateways = ["gw"];
    const required: (readonly string[])[] = [];
    one.prover.onAttempt = ({ gateways }) => {
      required.push(gateways);
      if (required.length === 1) one.clock.sleepMachine(60_000);
    };
    const wanted = one.want({ model: { a: "new" } });
    await one.untilMade("new");
    // Neither its paths nor its session are back when it is tried again.
    one.prover.gateways = [];
    one.prover.session = false;
    await wanted;
    await one.until("new");
    await one.engine.idle();
    expect([one.a(), one.commit.heldChange.current]).toEqual(["new", undefined]);
    expect(required.at(-1)).toEqual(["gw"]);
  });

  test("waits until the restored network reaches the control plane before it is tried again", async () => {
    const one = await proven();
    one.prover.afterRestore = NOBODY[0];
    one.prover.onAttempt = () => one.clock.sleepMachine(60_000);
    const wanted = one.want({ model: { a: "new" } });
    await one.until("old");
    await wanted;
    await one.clock.advance(5000);
    expect([one.a(), one.rollbacks.length]).toEqual(["old", 1]);
    one.prover.onAttempt = () => undefined;
    one.prover.afterRestore = undefined;
    await one.until("new");
  });

  test("whose targets are reached only after its window is refused after three times", async () => {
    const one = await proven();
    one.prover.onAttempt = () => one.clock.sleepMachine(60_000);
    await one.want({ model: { a: "new" } });
    await waitFor("it is refused", () => one.commit.heldChange.current?.is === "refused");
    expect(one.commit.heldChange.current).toMatchObject({ attempts: 3, last: { isLate: true } });
    expect([one.a(), one.rollbacks.length]).toEqual(["old", 3]);
  });

  test("after whose rollback nothing is reached either is retried when a session returns", async () => {
    const one = await proven();
    one.prover.unreached = NOBODY;
    one.prover.afterRestore = NOBODY[0];
    const wanted = one.want({ model: { a: "new" } });
    await one.untilMade("new");
    await one.until("old");
    await wanted;
    await one.clock.advance(20_000);
    expect(one.commit.heldChange.current).toMatchObject({ is: "waiting", attempts: 1 });
    one.prover.unreached = [];
    one.prover.afterRestore = undefined;
    one.commit.sessionOpened();
    await one.engine.idle();
    expect([one.a(), one.commit.heldChange.current]).toEqual(["new", undefined]);
  });

  test("that a restarting control plane rejects is refused only after three times", async () => {
    const one = await proven();
    one.prover.unreached = [{ target: "control plane 192.0.2.1:443", message: "connection refused" }];
    const wanted = one.want({ model: { a: "new" } });
    await one.untilMade("new");
    await one.until("old");
    await wanted;
    for (const attempts of [1, 2]) {
      await settle();
      expect(one.commit.heldChange.current).toMatchObject({ is: "waiting", attempts });
      one.commit.sessionOpened();
      await one.until("new");
      await one.until("old");
    }
    await waitFor("it is refused", () => one.commit.heldChange.current?.is === "refused");
  });

  test.each([
    ["began anew in the middle of it", 20_000, ["waiting", "waiting", "refused"]],
    ["began anew after it", 0, ["waiting", "waiting", "refused"]],
    ["was there all the while", 3_600_000, ["refused"]],
    ["says nothing of itself", undefined, ["refused"]],
  ])("over which nothing was received, from a control plane that %s", async (_what, serving, verdicts) => {
    const one = await proven();
    one.prover.unreached = NOBODY;
    one.prover.serving = serving;
    const wanted = one.want({ model: { a: "new" } });
    for (const [at, verdict] of verdicts.entries()) {
      await one.until("new");
      await one.until("old");
      await wanted;
      await waitFor(`it is ${verdict}`, () => one.commit.heldChange.current?.is === verdict);
      await settle();
      expect(one.commit.heldChange.current).toMatchObject({ is: verdict, attempts: at + 1 });
      if (verdict === "waiting") one.commit.sessionOpened();
    }
  });

  test("is not retried by a session that opens during its rollback", async () => {
    const one = await proven();
    one.prover.unreached = NOBODY;
    const wanted = one.want({ model: { a: "new" } });
    await one.untilMade("new");
    one.machine.after = () => one.commit.sessionOpened();
    await one.until("old");
    await wanted;
    await waitFor("it is refused", () => one.commit.heldChange.current?.is === "refused");
    expect([one.a(), one.rollbacks.length]).toEqual(["old", 1]);
  });

  test("over which the control plane was silent is applied once that is back", async () => {
    const one = await proven();
    one.prover.unreached = NOBODY;
    one.prover.serving = 1000;
    const wanted = one.want({ model: { a: "new" } });
    await one.untilMade("new");
    await one.until("old");
    await wanted;
    await settle();
    one.prover.unreached = [];
    one.commit.sessionOpened();
    await one.engine.idle();
    expect([one.a(), one.commit.heldChange.current]).toEqual(["new", undefined]);
  });

  test("is superseded by a newer one: rolled back first, then the newer one is applied", async () => {
    const one = await proven();
    one.prover.unreached = NOBODY;
    const seen: string[] = [];
    one.machine.after = () => void seen.push(one.a() ?? "none");
    const wanted = one.want({ model: { a: "new" } });
    await waitFor("it is being proven", () => one.state() === "proving");
    one.prover.unreached = [];
    await one.want({ model: { a: "newer" } });
    await wanted;
    expect([seen, one.rollbacks]).toEqual([["new", "old", "newer"], []]);
  });

  test("continues when the newer one does not touch it", async () => {
    const one = await proven();
    one.prover.unreached = NOBODY;
    const wanted = one.want({ model: { a: "new" } });
    await waitFor("it is being proven", () => one.state() === "proving");
    one.engine.set({ version: { node: 3 }, config: { model: { a: "new" }, other: {} }, isActive: true });
    await one.clock.advance(3000);
    expect([one.a(), one.state()]).toEqual(["new", "proving"]);
    one.prover.unreached = [];
    await one.clock.advance(2000);
    await wanted;
    expect([one.a(), one.rollbacks]).toEqual(["new", []]);
  });

  test("that misses only a gateway is not to blame as long as the old network does not reach it either", async () => {
    const one = await proven();
    one.prover.gateways = ["gw"];
    one.prover.unreached = [{ target: "gateway gw 192.0.2.2:443", message: "connection timed out", isGateway: true }];
    const wanted = one.want({ model: { a: "new" } });
    await one.untilMade("new");
    await one.until("old");
    await wanted;
    await one.clock.advance(20_000);
    expect(one.commit.heldChange.current).toMatchObject({ is: "waiting", last: { gateways: ["gw"] } });
    // Not reached before the next attempt, so not required.
    one.prover.gateways = [];
    one.prover.unreached = [];
    await one.until("new");
    await one.engine.idle();
    expect([one.a(), one.commit.heldChange.current]).toEqual(["new", undefined]);
  });

  test("over which a gateway was reached and the control plane was not is refused only after three times", async () => {
    const one = await proven();
    one.prover.gateways = ["gw"];
    one.prover.unreached = NOBODY;
    const wanted = one.want({ model: { a: "new" } });
    await one.untilMade("new");
    await one.until("old");
    await wanted;
    await settle();
    expect(one.commit.heldChange.current).toMatchObject({ is: "waiting", attempts: 1, last: { isHeard: true } });
  });

  test("that another program undoes during its verification is not confirmed: the targets were reached without it", async () => {
    const one = await proven();
    one.prover.unreached = NOBODY;
    const wanted = one.want({ model: { a: "new" } });
    await waitFor("it is being proven", () => one.state() === "proving" && one.prover.attempts > 1);
    one.machine.values.set("a", "of another tool");
    one.prover.unreached = [];
    await one.until("old", 200);
    await wanted;
    expect(one.rollbacks).toMatchObject([{ code: "step-failed", step: { kind: "set", subject: "a" } }]);
    expect(one.rollbacks[0]?.evidence).toContain("somebody else changed it");
    expect(one.commit.isProven("model", { a: "new" })).toBe(false);
  });

  test("is not blamed for a disk that refuses the record of its steps", async () => {
    const disk = hostFiles();
    let isFull = false;
    const files = {
      ...disk,
      writeAtomic: (path: string, text: string, mode: number) =>
        isFull && path.endsWith("checkpoint-progress.json")
          ? Promise.reject(new HostError("disk-full", "no space left on device"))
          : disk.writeAtomic(path, text, mode),
    };
    const dir = join(tempDir(), "desired");
    mkdirSync(dir, { recursive: true });
    const one = await proven({ dir, checkpoint: new Checkpoint(files, dir) });
    isFull = true;
    await one.want({ model: { a: "new" } });
    for (let i = 0; i < 5; i += 1) {
      await one.clock.advance((one.standing().nextAttempt ?? 0) - one.clock.now());
      await one.engine.idle();
    }
    expect([one.a(), one.rollbacks, one.commit.heldChange.current]).toEqual(["old", [], undefined]);
    expect(one.standing().outcome).toMatchObject({ state: "failed", error: { code: "disk-full" } });
    isFull = false;
    await one.clock.advance((one.standing().nextAttempt ?? 0) - one.clock.now());
    await one.engine.idle();
    expect(one.a()).toBe("new");
  });

  test("that cannot start after a restart leaves the last confirmed configuration applied", async () => {
    const first = await proven();
    await first.engine.close();
    first.machine.values.clear();
    const refusal = new HostError("guard-failed", "no process");
    const { dir, machine, clock } = first;
    const next = await rig({ dir, machine, clock, commit: { watch: () => Promise.reject(refusal) } });
    await next.want({ model: { a: "new" } });
    expect(next.a()).toBe("old");
    expect(next.standing().outcome).toMatchObject({ state: "failed", error: { code: "guard-failed" } });
  });

  test("does not start when nothing can watch it or the disk is full", async () => {
    const refusal = new HostError("guard-failed", "no process");
    const one = await rig({ commit: { watch: () => Promise.reject(refusal) } });
    await one.want({ model: { a: "new" } });
    expect([one.a(), await one.checkpoint.isPending()]).toEqual([undefined, false]);
    expect(one.standing().outcome).toMatchObject({ state: "failed", error: { code: "guard-failed" } });
  });

  test("with a step that fails three times is refused with that step", async () => {
    const one = await proven();
    one.machine.before = (subject) => {
      if (subject === "c") throw new HostError("exec-failed", "ip: line 3: RTNETLINK answers: File exists");
    };
    await one.want({ model: { a: "new", c: "1" } });
    one.machine.before = (subject) => {
      if (subject === "c" && one.a() === "new") throw new HostError("exec-failed", "ip: line 3: RTNETLINK answers");
    };
    for (let i = 0; i < 5; i += 1) {
      await one.clock.advance(5000);
      await one.engine.idle();
    }
    expect(one.a()).toBe("old");
    await waitFor("it is refused", () => one.commit.heldChange.current?.is === "refused");
    expect(one.commit.heldChange.current).toMatchObject({
      attempts: 3,
      last: { code: "step-failed", step: { kind: "set" } },
    });
    expect(one.rollbacks).toHaveLength(3);
  });
});

describe("a change without a session before it", () => {
  test("is confirmed by an operator, by a session, and by nothing else", async () => {
    const one = await proven();
    one.prover.session = false;
    const wanted = one.want({ model: { a: "new" } });
    await waitFor("it is being proven", () => one.state() === "proving");
    await one.clock.advance(10_000);
    expect(one.state()).toBe("proving");
    const kept = one.engine.keep();
    await settle();
    await Promise.all([kept, wanted]);
    expect([one.a(), one.rollbacks]).toEqual(["new", []]);
    const again = one.want({ model: { a: "newer" } });
    await waitFor("it is being proven", () => one.state() === "proving");
    // A session over a socket older than the change proves nothing.
    one.prover.unreached = NOBODY;
    one.commit.sessionOpened();
    await one.clock.advance(3000);
    expect(one.state()).toBe("proving");
    one.prover.unreached = [];
    await advanceUntil("it is confirmed", one.clock, () => one.commit.window === undefined);
    await again;
    const last = one.want({ model: { a: "newest" } });
    await one.until("newest");
    await one.until("newer");
    await last;
    expect(one.rollbacks[0]?.evidence).toContain("there was no session before the change");
  });
});

describe("a trial", () => {
  const TEN = { mode: "try", seconds: 600 } as const;

  test("that nobody confirms ends at its deadline, and drift within it is reverted", async () => {
    const one = await proven();
    one.ask(TEN);
    await one.want({ model: { a: "new" } });
    expect([one.a(), one.state()]).toEqual(["new", "awaiting-keep"]);
    one.machine.values.set("a", "by hand");
    await one.clock.advance(120_000);
    await one.engine.idle();
    expect([one.a(), one.state()]).toEqual(["new", "awaiting-keep"]);
    await one.clock.advance(470_000);
    expect(one.a()).toBe("new");
    await one.until("old");
    expect(one.rollbacks).toMatchObject([{ code: "not-kept", mode: "try" }]);
    expect(one.rollbacks[0]?.evidence).toContain("10 min");
    await waitFor("it is refused", () => one.commit.heldChange.current?.is === "refused");
  });

  test("stays when confirmed, and is rolled back at once on request", async () => {
    const one = await proven();
    one.ask(TEN);
    await one.want({ model: { a: "new" } });
    await one.engine.keep();
    await one.clock.advance(700_000);
    expect([one.a(), one.commit.window]).toEqual(["new", undefined]);
    await one.want({ model: { a: "newer" } });
    await one.engine.revert();
    expect([one.a(), one.commit.window]).toEqual(["new", undefined]);
    await expect(one.engine.keep()).rejects.toMatchObject({ code: "not-found" });
    await expect(one.engine.revert()).rejects.toMatchObject({ code: "not-found" });
  });

  test.each(["in the same agent", "in the next one"])(
    "that is being rolled back does not stop half-way, %s",
    async (where) => {
      const one = await proven();
      one.ask(TEN);
      await one.want({ model: { a: "new", b: "1" } });
      one.machine.before = (subject) => {
        if (subject === "a") throw new HostError("exec-failed", "busy");
      };
      await one.engine.revert();
      expect([one.a(), one.machine.values.has("b"), one.state()]).toEqual(["new", false, "awaiting-keep"]);
      one.machine.before = () => undefined;
      if (where === "in the same agent") {
        await expect(one.engine.keep()).rejects.toMatchObject({ code: "busy" });
        await one.until("old");
        await waitFor("it is over", () => one.commit.window === undefined);
        expect(one.rollbacks).toMatchObject([{ code: "reverted" }]);
        return;
      }
      await one.engine.close();
      const { dir, machine, clock } = one;
      const next = await rig({ dir, machine, clock });
      await next.engine.idle();
      expect([next.a(), next.commit.window]).toEqual(["old", undefined]);
    },
  );

  test("yields to something newer and continues past what does not touch it", async () => {
    const one = await proven();
    one.ask(TEN);
    await one.want({ model: { a: "new" } });
    await one.want({ model: { a: "new" }, other: {} });
    expect([one.a(), one.state()]).toEqual(["new", "awaiting-keep"]);
    one.ask({ mode: "save", seconds: 60 });
    await one.want({ model: { a: "newer" } });
    expect([one.a(), one.commit.window, one.rollbacks]).toEqual(["newer", undefined, []]);
  });

  test("does not depend on jumps of the wall clock, and counts the time of a suspend", async () => {
    const one = await proven();
    one.ask(TEN);
    await one.want({ model: { a: "new" } });
    one.clock.setWall(Date.UTC(2040, 0, 1));
    await one.clock.advance(60_000);
    await one.engine.idle();
    expect(one.a()).toBe("new");
    one.clock.setWall(0);
    await one.clock.advance(60_000);
    expect(one.a()).toBe("new");
    one.clock.sleepMachine(600_000);
    one.engine.reevaluate("resumed");
    await one.engine.idle();
    expect(one.a()).toBe("old");
  });

  test("continues in the next agent, and ends at its deadline there", async () => {
    const first = await proven();
    first.ask(TEN);
    await first.want({ model: { a: "new" } });
    await first.engine.close();
    const { dir, machine, clock } = first;
    const next = await rig({ dir, machine, clock });
    next.engine.set({ version: { node: 2 }, config: { model: { a: "new" } }, isActive: true });
    await next.engine.idle();
    expect([next.a(), next.state()]).toEqual(["new", "awaiting-keep"]);
    await clock.advance(590_000);
    expect(next.a()).toBe("new");
    await next.until("old");
    expect(next.rollbacks).toMatchObject([{ code: "not-kept" }]);
  });
});

describe("the next agent", () => {
  async function cutShort(mode: "save" | "try" = "save", isTried = true) {
    const one = await proven();
    one.prover.unreached = NOBODY;
    one.prover.isSilent = !isTried;
    one.ask({ mode, seconds: 600 });
    void one.want({ model: { a: "new" } }).catch(() => undefined);
    await waitFor("it is being proven", () => one.state() === "proving");
    if (isTried) await advanceUntil("it was tried", one.clock, () => one.commit.window?.unreached);
    await one.engine.close();
    expect(await one.checkpoint.isPending()).toBe(true);
    return one;
  }
  const wantNew = async (next: Awaited<ReturnType<typeof rig>>) => {
    next.engine.set({ version: { node: 2 }, config: { model: { a: "new" } }, isActive: true });
    await next.engine.idle();
  };

  test("rolls back what was interrupted before any verification, and retries when a session comes", async () => {
    const { dir, machine, clock } = await cutShort("save", false);
    const next = await rig({ dir, machine, clock });
    await wantNew(next);
    expect([next.a(), next.rollbacks[0]?.code]).toEqual(["old", "interrupted"]);
    next.commit.sessionOpened();
    await next.engine.idle();
    expect([next.a(), next.commit.heldChange.current]).toEqual(["new", undefined]);
  });

  test("refuses what had reached no target when interrupted, once there is a session over the old configuration", async () => {
    const { dir, machine, clock } = await cutShort();
    const next = await rig({ dir, machine, clock });
    await wantNew(next);
    expect(next.rollbacks[0]?.evidence).toContain("before that: control plane 192.0.2.1:443: connection timed out");
    next.commit.sessionOpened();
    await waitFor("it is refused", () => next.commit.heldChange.current?.is === "refused");
    await next.engine.idle();
    expect(next.a()).toBe("old");
  });

  test("applies the old configuration after a reboot without any control plane; a trial has ended then", async () => {
    const { dir, machine, clock } = await cutShort("try");
    const next = await rig({ dir, machine, clock, commit: { bootId: "0197f1a2-0000-4000-8000-0000000000ff" } });
    next.prover.session = false;
    await wantNew(next);
    expect([next.a(), next.rollbacks[0]?.code, next.commit.window]).toEqual(["old", "rebooted", undefined]);
    next.commit.sessionOpened();
    await waitFor("it is refused", () => next.commit.heldChange.current?.is === "refused");
    expect(next.a()).toBe("old");
  });

  test("applies what was confirmed at once, without verification or session", async () => {
    const one = await proven();
    await one.engine.close();
    one.machine.values.clear();
    const next = await rig({ dir: one.dir, machine: one.machine, clock: one.clock });
    next.prover.session = false;
    next.prover.unreached = NOBODY;
    next.engine.set({ version: { node: 1 }, config: { model: { a: "old" } }, isActive: true });
    await next.engine.idle();
    expect([next.a(), next.commit.window, next.watched]).toEqual(["old", undefined, []]);
  });

  test("that finds a damaged checkpoint applies what was confirmed, and waits for a session with the rest", async () => {
    const { dir, machine, clock } = await cutShort();
    writeFileSync(join(dir, "checkpoint.json"), '{"format":1,"sha256":"no","body":{}}');
    const next = await rig({ dir, machine, clock });
    await wantNew(next);
    expect([next.a(), next.faults]).toEqual(["old", ["damaged-file"]]);
    next.commit.sessionOpened();
    await next.engine.idle();
    expect(next.a()).toBe("new");
  });

  test("reports what the guard did", async () => {
    const one = await proven();
    await one.engine.close();
    const takenBack: Rollback = {
      at: 7,
      by: "guard",
      code: "interrupted",
      evidence: "the agent ended",
      mode: "save",
      isLocal: false,
      versions: { node: 2 },
      failed: [],
    };
    const id = crypto.randomUUID();
    await commitFiles(hostFiles(), one.dir).guardResult.save({ id, guards: { model: { a: "new" } }, takenBack });
    const next = await rig({ dir: one.dir, machine: one.machine, clock: one.clock });
    await wantNew(next);
    expect([next.a(), next.rollbacks]).toEqual(["old", [takenBack]]);
    expect(await commitFiles(hostFiles(), one.dir).guardResult.load()).toEqual({ is: "absent" });
  });
});

test("an agent that hung detects that the guard rolled its change back, and does not continue it", async () => {
  const one = await proven();
  let release = (): void => undefined;
  one.machine.before = (subject) =>
    subject === "b" ? new Promise<void>((resolve) => (release = () => resolve())) : undefined;
  const wanted = one.want({ model: { a: "new", b: "1", c: "1" } });
  await waitFor("it hangs", () => one.a() === "new");
  const id = one.checkpoint.pending?.id ?? "";
  const guard = new Checkpoint(hostFiles(), one.dir);
  expect(await guard.takeOver(id, 0)).toBe(true);
  const files = commitFiles(hostFiles(), one.dir);
  one.machine.before = () => undefined;
  const section = reconciler(modelSection(one.machine, { isGuarded: () => true }));
  await guard.restore([section], new AbortController().signal);
  const about = { at: 1, by: "guard", code: "hung", evidence: "it hung", mode: "save", isLocal: false } as const;
  const guards = { model: { a: "new", b: "1", c: "1" } };
  await files.guardResult.save({ id, guards, takenBack: { ...about, versions: {}, failed: [] } });
  expect(one.a()).toBe("old");
  release();
  await wanted;
  const isBefore = () => one.a() === "old" && !one.machine.values.has("b");
  await advanceUntil("it is as before", one.clock, () => isBefore() && one.commit.heldChange.current !== undefined);
  expect(one.rollbacks).toMatchObject([{ code: "hung" }]);
});

test("a step that an agent applies after the rollback of the guard is rolled back too", async () => {
  const one = await proven();
  let release = (): void => undefined;
  // It stops between the record that the step is due and the step.
  one.machine.before = (subject) =>
    subject === "a" ? new Promise<void>((resolve) => (release = () => resolve())) : undefined;
  const wanted = one.want({ model: { a: "new" } });
  await waitFor("it hangs", () => one.state() === "applying" && release.name !== "");
  await settle();
  const guard = new Checkpoint(hostFiles(), one.dir);
  expect(await guard.takeOver(one.checkpoint.pending?.id ?? "", 0)).toBe(true);
  one.machine.before = () => undefined;
  const section = reconciler(modelSection(one.machine, { isGuarded: () => true }));
  await guard.restore([section], new AbortController().signal);
  release();
  await wanted;
  await advanceUntil("it is as before", one.clock, () => one.a() === "old" && one.commit.window === undefined);
  expect(one.rollbacks).toHaveLength(1);
});
