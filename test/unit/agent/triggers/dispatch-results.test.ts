import { randomUUID } from "node:crypto";
import { describe, expect, test, vi } from "vitest";
import type { TriggerReply } from "../../../../src/agent/triggers/trigger.ts";
import { HostError } from "../../../../src/errors.ts";
import { RemoteError } from "../../../../src/protocol/rpc.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { claims, fastClock, memoryJournal, NOW, oneShot, rig, stream, TestChannel, untilAborted } from "./rig.ts";

const answer = oneShot("answer", () => Promise.resolve({ output: { message: "m" } }), { readOnly: true });
const error = (reply: TriggerReply) => ("error" in reply ? reply.error : undefined);

describe("results that could not be given in the reply", () => {
  const refused = (code: string): RemoteError => new RemoteError(code, "no");

  test("are kept while the channel fails or says later, and dropped when refused for good", async () => {
    const clock = new FakeClock();
    const { run, channel, dispatcher, journal } = rig([answer], { clock });
    channel.refusals.push(new Error("closed"), refused("busy"), refused("not-found"));
    await run("answer", { wait: false });
    await vi.waitFor(() => expect(channel.refusals).toHaveLength(2));
    dispatcher.attach(channel);
    await vi.waitFor(() => expect(channel.refusals).toHaveLength(1));
    expect(journal.unacknowledged(10)).toHaveLength(1);
    dispatcher.attach(channel);
    await vi.waitFor(() => expect(journal.unacknowledged(10)).toEqual([]));
    expect(channel.results).toEqual([]);
  });

  test("are sent again in the same session, later and later, until they are taken", async () => {
    const clock = new FakeClock();
    const { run, channel, journal, dispatcher } = rig([answer], { clock });
    channel.refusals.push(refused("busy"), refused("internal"), new DOMException("late", "TimeoutError"));
    await run("answer", { wait: false });
    await vi.waitFor(() => expect(channel.refusals).toHaveLength(2));
    await clock.advance(2000);
    expect(channel.refusals).toHaveLength(1);
    await clock.advance(3000);
    expect(channel.refusals).toHaveLength(1);
    await clock.advance(9000);
    expect(channel.results).toHaveLength(1);
    expect(journal.unacknowledged(10)).toEqual([]);
    await dispatcher.close();
    expect(clock.pendingTimers).toBe(0);
  });

  test("are not tried again once the session or the node has ended", async () => {
    const clock = new FakeClock();
    const { run, channel, dispatcher } = rig([answer], { clock });
    channel.refusals.push(refused("busy"), refused("busy"));
    await run("answer", { wait: false });
    await vi.waitFor(() => expect(channel.refusals).toHaveLength(1));
    channel.end();
    await clock.advance(600_000);
    expect(channel.refusals).toHaveLength(1);
    await dispatcher.close();
    expect(clock.pendingTimers).toBe(0);
  });

  test("are all sent, however many, in order", async () => {
    const { journal } = memoryJournal();
    const ids = Array.from({ length: 120 }, () => randomUUID());
    for (const id of ids) {
      journal.begin({ id, event: "e", digest: "d", deadlineMs: 1, now: NOW, expiresMs: NOW });
      journal.finish(id, { body: 1 }, true);
    }
    const { channel } = rig([], { journal });
    await vi.waitFor(() => expect(channel.results.map(({ id }) => id)).toEqual(ids));
  });
});

describe("effects that follow the reply", () => {
  function withEffect(act: (signal: AbortSignal) => Promise<void>) {
    const failed = vi.fn<() => Promise<void>>(() => Promise.resolve());
    const trigger = oneShot("restart", () => Promise.resolve({ ok: 1 }), {
      exclusive: "node",
      afterReply: { settledBy: "restart", act, failed },
    });
    return { failed, trigger };
  }

  test("begin after it, are settled at the next start, and keep others out", async () => {
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
    await vi.waitFor(() => expect(order).toEqual(["reply", "act"]));
    expect(error(await run("restart"))).toMatchObject({ code: "busy" });
    expect(await run("restart", again)).toEqual({ body: { ok: 1 } });
    await dispatcher.close();
    expect(journal.find(again.jti)?.reply).toEqual({ body: { ok: 1 } });
    expect(journal.settle("another-boot", NOW)).toBe(1);
    const { channel } = rig([trigger], { journal });
    await vi.waitFor(() => expect(channel.results).toMatchObject([{ id: again.jti, reply: { body: { output: {} } } }]));
  });

  test("that fail, hang or are cancelled are reported, taken back, and free the place", async () => {
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
      await vi.waitFor(() => expect(channel.results).toHaveLength(1));
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
    await vi.waitFor(() => expect(local.results).toMatchObject([{ id, reply: { body: { exitCode: 0 } } }]));
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
