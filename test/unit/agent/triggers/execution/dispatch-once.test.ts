import { randomUUID } from "node:crypto";
import { describe, expect, test, vi } from "vitest";
import type { Trigger, TriggerReply } from "../../../../../src/agent/triggers/execution/trigger.ts";
import { claims, DAY, deferred, memoryJournal, NOW, oneShot, rig, stream, TestChannel, untilAborted } from "../rig.ts";
import { untilHolds } from "../../../../support/until-holds.ts";

const answer = oneShot("answer", () => Promise.resolve({ output: { message: "m" } }), { readOnly: true });
const hang = (event: string, more = {}): Trigger =>
  stream(
    event,
    async ({ emit, signal }) => {
      await emit({ kind: "stdout", data: "begun\n" });
      await untilAborted(signal);
      await emit({ kind: "stdout", data: "summary\n" });
      return { exitCode: 0 };
    },
    more,
  );
const error = (reply: TriggerReply) => ("error" in reply ? reply.error : undefined);

describe("at most once", () => {
  test("a repeated id joins the running one", async () => {
    let runs = 0;
    const gate = deferred<unknown>();
    const trigger = oneShot("o", () => {
      runs += 1;
      return gate.promise;
    });
    const { run, dispatcher } = rig([trigger]);
    const again = claims("o", { body: { a: 1 } });
    const first = run("o", { ...again });
    const other = dispatcher.run({ ...again, sid: randomUUID() }, new TestChannel(), NOW);
    const unwaited = await run("o", { ...again, wait: false });
    gate.resolve({ n: 1 });
    expect([await first, await other, unwaited, runs]).toEqual([
      { body: { n: 1 } },
      { body: { n: 1 } },
      { body: true },
      1,
    ]);
  });

  test("a repeated id gets the stored answer, an error as well", async () => {
    let runs = 0;
    const trigger = oneShot("o", () => {
      runs += 1;
      return runs === 1 ? Promise.resolve({ runs }) : Promise.reject(new Error("twice"));
    });
    const journal = memoryJournal().journal;
    const id = randomUUID();
    expect(await rig([trigger], { journal }).run("o", { jti: id })).toEqual({ body: { runs: 1 } });
    expect(await rig([trigger], { journal }).run("o", { jti: id })).toEqual({ body: { runs: 1 } });
    const { run, channel } = rig([trigger], { journal });
    expect(await run("o", { jti: id, wait: false })).toEqual({ body: true });
    await untilHolds(() => expect(channel.results).toEqual([{ id, reply: { body: { runs: 1 } } }]));
    expect(runs).toBe(1);
  });

  test("a repeated id is remembered until the repetition has expired", async () => {
    const { run, dispatcher, channel, journal } = rig([answer]);
    const again = claims("answer");
    await run("answer", again);
    await run("answer", { ...again, exp: (NOW + 3 * DAY) / 1000 });
    await dispatcher.run(claims("answer"), channel, NOW + 2 * DAY);
    expect(journal.find(again.jti)).toBeDefined();
    await dispatcher.run(claims("answer"), channel, NOW + 4 * DAY);
    expect(journal.find(again.jti)).toBeUndefined();
  });

  test("an id of another trigger is a replay, during the run and after", async () => {
    const { run, dispatcher } = rig([hang("s"), answer]);
    const id = randomUUID();
    const first = run("s", { jti: id, body: { a: 1 } });
    expect(error(await run("s", { jti: id, body: { a: 2 } }))).toMatchObject({ code: "replayed" });
    dispatcher.cancel(id);
    await first;
    expect(error(await run("s", { jti: id, body: { a: 2 } }))).toMatchObject({ code: "replayed" });
    expect(error(await run("answer", { jti: id, body: { a: 1 } }))).toMatchObject({ code: "replayed" });
  });

  test("one that a crash interrupted is reported as such and not run", async () => {
    const { journal } = memoryJournal();
    const handle = vi.fn<() => Promise<unknown>>(() => Promise.resolve({}));
    const cut = claims("o");
    const stuck = rig([oneShot("o", () => new Promise(() => undefined))], { journal });
    void stuck.dispatcher.run(cut, stuck.channel, NOW);
    const { run, channel } = rig([oneShot("o", handle)], { journal });
    expect(error(await run("o", cut))).toMatchObject({ code: "interrupted" });
    journal.reopen();
    expect(error(await run("o", cut))).toMatchObject({ code: "interrupted" });
    expect([handle.mock.calls, channel.results]).toEqual([[], []]);
  });

  test("without a journal only reading events run; with a full one none", async () => {
    const change = oneShot("change", () => Promise.resolve({}));
    const none = rig([answer, change], { journal: memoryJournal({ isPersistent: false }).journal });
    expect(await none.run("answer")).toHaveProperty("body");
    expect(error(await none.run("change"))).toMatchObject({ code: "storage-unavailable" });
    const id = randomUUID();
    expect(await none.run("answer", { jti: id, wait: false })).toEqual({ body: true });
    await untilHolds(() => expect(none.channel.results).toMatchObject([{ id }]));
    const full = rig([answer, change], { journal: memoryJournal({ maxRows: 0 }).journal });
    expect(error(await full.run("answer"))).toMatchObject({ code: "busy" });
  });

  test("without a journal repairing events run, once, and an effect is answered before it ends the program", async () => {
    const handle = vi.fn<() => Promise<unknown>>(() => Promise.resolve({ n: 1 }));
    const remedy = oneShot("remedy", handle, { isRemedy: () => true });
    const { journal } = memoryJournal({ isPersistent: false });
    const once = claims("remedy");
    const { run } = rig([remedy], { journal });
    expect(await run("remedy", once)).toEqual({ body: { n: 1 } });
    expect(await run("remedy", once)).toEqual({ body: { n: 1 } });
    expect(error(await run("remedy", { ...once, body: { other: 1 } }))).toMatchObject({ code: "replayed" });
    expect(handle).toHaveBeenCalledTimes(1);

    const acted = deferred<number>();
    const reported = new TestChannel();
    const act = (): Promise<void> => Promise.resolve(acted.resolve(reported.results.length));
    const effect = { settledBy: "restart" as const, act, failed: () => Promise.resolve() };
    const restart = oneShot("restart", handle, { isRemedy: () => true, afterReply: effect });
    const ending = rig([restart], { journal });
    expect(await ending.dispatcher.run(claims("restart", { wait: false }), reported, NOW)).toEqual({ body: true });
    expect(await acted.promise).toBe(1);
    await ending.dispatcher.close();
  });

  test("a journal that breaks during the run costs no answer", async () => {
    const { sql, journal } = memoryJournal();
    const trigger = oneShot("o", () => {
      sql.close();
      return Promise.resolve({ n: 1 });
    });
    const { run } = rig([trigger, answer], { journal });
    expect(await run("o")).toEqual({ body: { n: 1 } });
    expect(await run("answer")).toHaveProperty("body");
    expect(error(await run("o"))).toMatchObject({ code: "storage-unavailable" });
  });
});
