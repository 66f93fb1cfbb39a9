import { randomUUID } from "node:crypto";
import { describe, expect, test, vi } from "vitest";
import type { TriggerReply } from "../../../../../src/agent/triggers/execution/trigger.ts";
import { HostError, SessionError } from "../../../../../src/errors.ts";
import { RemoteError } from "../../../../../src/protocol/channel/rpc.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";
import { claims, fastClock, memoryJournal, NOW, oneShot, rig, stream, TestChannel, untilAborted } from "../rig.ts";
import { untilHolds } from "../../../../support/until-holds.ts";

const answer = oneShot("answer", () => Promise.resolve({ output: { message: "m" } }), { readOnly: true });
const error = (reply: TriggerReply) => ("error" in reply ? reply.error : undefined);

describe("results after the reply", () => {
  const refused = (code: string): RemoteError => new RemoteError(code, "no");

  test("are kept while the channel fails or asks to wait, and dropped when refused permanently", async () => {
    const clock = new FakeClock();
    const { run, channel, dispatcher, journal } = rig([answer], { clock });
    channel.refusals.push(new Error("closed"), refused("busy"), refused("not-found"));
    await run("answer", { wait: false });
    await untilHolds(() => expect(channel.refusals).toHaveLength(2));
    dispatcher.attach(channel);
    await untilHolds(() => expect(channel.refusals).toHaveLength(1));
    expect(journal.unacknowledged(10)).toHaveLength(1);
    dispatcher.attach(channel);
    await untilHolds(() => expect(journal.unacknowledged(10)).toEqual([]));
    expect(channel.results).toEqual([]);
  });

  test("are sent again in the same session with backoff, until accepted", async () => {
    const clock = new FakeClock();
    const { run, channel, journal, dispatcher } = rig([answer], { clock });
    channel.refusals.push(refused("busy"), refused("internal"), new DOMException("late", "TimeoutError"));
    await run("answer", { wait: false });
    await untilHolds(() => expect(channel.refusals).toHaveLength(2));
    await clock.advance(2000);
    expect(channel.refusals).toHaveLength(1);
    await clock.advance(1000);
    expect(channel.refusals).toHaveLength(1);
    await clock.advance(1000);
    expect(channel.refusals).toHaveLength(0);
    await clock.advance(3000);
    expect(channel.results).toHaveLength(0);
    await clock.advance(1000);
    expect(channel.results).toHaveLength(1);
    expect(journal.unacknowledged(10)).toEqual([]);
    await dispatcher.close();
    expect(clock.pendingTimers).toBe(0);
  });

  test("are not retried once the session or the node has ended", async () => {
    const clock = new FakeClock();
    const { run, channel, dispatcher } = rig([answer], { clock });
    channel.refusals.push(refused("busy"), refused("busy"));
    await run("answer", { wait: false });
    await untilHolds(() => expect(channel.refusals).toHaveLength(1));
    channel.end();
    await clock.advance(600_000);
    expect(channel.refusals).toHaveLength(1);
    await dispatcher.close();
    expect(clock.pendingTimers).toBe(0);
  });

  /** A node that comes online with this number of results; the control plane always fails those of `poisoned`. */
  function waiting(count: number, poisoned: readonly number[], failure: Error = refused("internal")) {
    const clock = new FakeClock();
    const { journal } = memoryJournal();
    const ids: readonly string[] = Array.from({ length: count }, () => randomUUID());
    for (const id of ids) {
      journal.begin({ id, event: "e", digest: "d", deadlineMs: 1, now: NOW, expiresMs: NOW, isReadOnly: false });
      journal.finish(id, { body: 1 }, true);
    }
    const parts = rig([], { journal, clock, isOffline: true });
    const { channel, dispatcher } = parts;
    channel.poison = new Map(poisoned.map((i) => [ids[i] ?? "", failure]));
    dispatcher.attach(channel);
    const taken = (): readonly number[] => channel.results.map(({ id }) => ids.indexOf(id));
    const tries = (i: number): number => channel.tried.filter((id) => id === ids[i]).length;
    /** Advances the time in steps, so that each timer's work can run. */
    const pass = async (ms: number): Promise<void> => {
      await new Promise(setImmediate);
      for (let passed = 0; passed < ms; passed += 1000) {
        await clock.advance(1000);
        await new Promise(setImmediate);
      }
    };
    return { ...parts, clock, ids, taken, tries, pass };
  }

  test.each([
    ["fails", refused("internal")],
    ["never answers", new DOMException("late", "TimeoutError")],
    ["answers something else to", new SessionError("invalid-result", "no")],
  ])("do not wait for one that the control plane %s every time", async (_what, failure) => {
    const { taken } = waiting(60, [0, 55], failure);
    await untilHolds(() => expect(taken()).toHaveLength(58));
    expect(taken()).not.toContain(0);
  });

  test("do not wait for many of them, which are distinguished from a control plane that fails everything", async () => {
    const { pass, taken } = waiting(8, [0, 1, 2, 3, 4]);
    await pass(1000);
    expect(taken()).toEqual([]);
    await pass(1000);
    expect(taken()).toEqual([5, 6, 7]);
  });

  test("that are always refused are retried with backoff, a limited number of times, and kept for the next session", async () => {
    const { clock, pass, channel, dispatcher, journal, ids, taken, tries } = waiting(3, [1]);
    await pass(3_600_000);
    expect([taken(), tries(1)]).toEqual([[0, 2], 8]);
    expect(journal.unacknowledged(10).map(({ id }) => id)).toEqual([ids[1]]);
    expect(clock.pendingTimers).toBe(0);
    dispatcher.attach(channel);
    await untilHolds(() => expect(tries(1)).toBe(9));
    channel.poison.clear();
    await pass(2000);
    expect(taken()).toEqual([0, 2, 1]);
    expect(journal.unacknowledged(10)).toEqual([]);
  });

  test("are not sent in bursts to a control plane that fails all of them", async () => {
    const { pass, channel, taken } = waiting(200, [...Array(200).keys()]);
    await pass(3_600_000);
    expect([taken(), channel.tried.length]).toEqual([[], expect.any(Number)]);
    expect(channel.tried.length).toBeLessThan(200);
  });

  test("are retried when the control plane asks for them", async () => {
    const { run, channel, dispatcher, journal } = rig([answer], { clock: new FakeClock() });
    const requested = claims("answer", { wait: false });
    channel.poison = new Map([[requested.jti, refused("internal")]]);
    await run("answer", requested);
    await untilHolds(() => expect(channel.tried).toHaveLength(1));
    channel.poison.clear();
    await run("answer", requested);
    await untilHolds(() => expect(channel.results).toHaveLength(1));
    expect(journal.unacknowledged(10)).toEqual([]);
    await dispatcher.close();
  });

  test("that have left the journal are deleted", async () => {
    const { clock, pass, journal, ids, channel } = waiting(2, [0]);
    await pass(1000);
    journal.acknowledge(ids[0] ?? "");
    await pass(600_000);
    expect([channel.tried.length, clock.pendingTimers]).toEqual([2, 0]);
  });

  test("are all sent, in any number, in order", async () => {
    const { journal } = memoryJournal();
    const ids = Array.from({ length: 120 }, () => randomUUID());
    for (const id of ids) {
      journal.begin({ id, event: "e", digest: "d", deadlineMs: 1, now: NOW, expiresMs: NOW, isReadOnly: false });
      journal.finish(id, { body: 1 }, true);
    }
    const { channel } = rig([], { journal });
    await untilHolds(() => expect(channel.results.map(({ id }) => id)).toEqual(ids));
  });
});

describe("effects after the reply", () => {
  function withEffect(act: (signal: AbortSignal) => Promise<void>) {
    const failed = vi.fn<() => Promise<void>>(() => Promise.resolve());
    const trigger = oneShot("restart", () => Promise.resolve({ ok: 1 }), {
      exclusive: "node",
      afterReply: { settledBy: "restart", act, failed },
    });
    return { failed, trigger };
  }

  test("start after it, are completed at the next start, and exclude others", async () => {
    const order: string[] = [];
    const { trigger } = withEffect(() => {
      order.push("act");
      return Promise.resolve();
    });
    const { journal } = memoryJournal();
    const { run, dispatcher } = rig([trigger], { journal });
    const again = claims("restart");
    expect(await run("restart", again)).toEqual({ body: { ok: 1 } });
    await new Promise(setImmediate); // The caller's own steps until the reply is in the socket.
    order.push("reply");
    await untilHolds(() => expect(order).toEqual(["reply", "act"]));
    expect(error(await run("restart"))).toMatchObject({ code: "busy" });
    expect(await run("restart", again)).toEqual({ body: { ok: 1 } });
    await dispatcher.close();
    expect(journal.find(again.jti)?.reply).toEqual({ body: { ok: 1 } });
    expect(journal.settle("another-boot", NOW)).toBe(1);
    const { channel } = rig([trigger], { journal });
    await untilHolds(() => expect(channel.results).toMatchObject([{ id: again.jti, reply: { body: { output: {} } } }]));
  });

  test("that fail, hang or are cancelled are reported, reverted, and release their slot", async () => {
    const attempts: ((signal: AbortSignal) => Promise<void>)[] = [
      () => Promise.reject(new HostError("exec-failed", "inhibited")),
      () => Promise.resolve(),
      (signal) => untilAborted(signal),
    ];
    const codes: unknown[] = [];
    for (const act of attempts) {
      const { trigger, failed } = withEffect(act);
      const { run, dispatcher, channel } = rig([trigger], { clock: fastClock(200) });
      const id = randomUUID();
      expect(await run("restart", { jti: id })).toEqual({ body: { ok: 1 } });
      if (attempts.indexOf(act) === 2) dispatcher.cancel(id);
      await untilHolds(() => expect(channel.results).toHaveLength(1));
      codes.push(error(channel.results[0]?.reply ?? { body: 1 })?.code);
      expect(failed).toHaveBeenCalledOnce();
      expect(await run("restart")).toHaveProperty("body");
    }
    expect(codes).toEqual(["exec-failed", "exec-failed", "cancelled"]);
  });
});

describe("a caller on this machine", () => {
  test("gets the same, with progress and the result on its own connection only", async () => {
    const users: string[] = [];
    const trigger = stream("s", async ({ emit, user }) => {
      users.push(user);
      await emit({ kind: "stdout", data: "line\n" });
      return { exitCode: 0 };
    });
    const { dispatcher, channel, journal } = rig([trigger]);
    const local = new TestChannel();
    const { id, reply } = dispatcher.runLocal({ event: "s", body: null, wait: false }, local);
    expect(await reply).toEqual({ body: true });
    await untilHolds(() => expect(local.results).toMatchObject([{ id, reply: { body: { exitCode: 0 } } }]));
    expect(await dispatcher.runLocal({ event: "s", body: {}, wait: true }, local).reply).toHaveProperty("body");
    expect([local.text, users, channel.results, journal.unacknowledged(10)]).toEqual([
      "line\n",
      ["local", "local"],
      [],
      [],
    ]);
    expect(error(await dispatcher.runLocal({ event: "x", body: 1, wait: true }, local).reply)).toMatchObject({
      code: "unknown-event",
    });
  });
});
