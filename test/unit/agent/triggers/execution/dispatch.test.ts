import { randomUUID } from "node:crypto";
import { pino } from "pino";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import type { Trigger, TriggerReply } from "../../../../../src/agent/triggers/execution/trigger.ts";
import { HostError } from "../../../../../src/errors.ts";
import { claims, deferred, fastClock, NOW, oneShot, rig, stream, TestChannel, untilAborted } from "../rig.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";
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

test("logs when a trigger without a waiting caller was accepted, and how it ended", async () => {
  const lines: { readonly msg: string; readonly outcome?: string }[] = [];
  const log = pino({ level: "info" }, { write: (line: string) => void lines.push(JSON.parse(line) as never) });
  const gate = deferred<void>();
  const waits = stream("waits", () => gate.promise.then(() => ({ exitCode: 0 })));
  const { run } = rig([answer, waits], { log });
  await run("waits", { wait: false });
  expect(lines).toMatchObject([{ msg: "trigger accepted" }]);
  expect(lines[0]).not.toHaveProperty("outcome");
  gate.resolve();
  await untilHolds(() => expect(lines.at(-1)).toMatchObject({ msg: "trigger ended", outcome: "ok" }));
  await run("answer");
  expect(lines.map(({ msg }) => msg)).toEqual(["trigger accepted", "trigger ended", "trigger answered"]);
});

test("logs each refused trigger with its reason, and counts repetitions of one kind", async () => {
  const lines: Record<string, unknown>[] = [];
  const log = pino({ level: "info" }, { write: (line: string) => void lines.push(JSON.parse(line) as never) });
  const clock = new FakeClock();
  const { run } = rig([answer], { log, clock });
  await run("no-such", { user: "jane" });
  expect(lines).toMatchObject([
    {
      msg: "trigger refused",
      level: 40,
      event: "no-such",
      user: "jane",
      outcome: "unknown-event",
      reason: "no trigger event no-such",
    },
  ]);
  for (let i = 0; i < 1000; i += 1) await run(`no-such-${i}`);
  expect(lines).toHaveLength(1);
  await clock.advance(60_000);
  expect(lines.slice(1)).toMatchObject([
    { msg: "trigger refused", kind: "unknown event: unknown-event", repeated: 1000 },
  ]);
});

test("counts refused triggers in the log by event and by reason", async () => {
  const strict = (event: string): Trigger => ({ ...answer, event, request: z.strictObject({}) });
  const lines: Record<string, unknown>[] = [];
  const log = pino({ level: "info" }, { write: (line: string) => void lines.push(JSON.parse(line) as never) });
  const clock = new FakeClock();
  const { run } = rig([strict("answer"), strict("other")], { log, clock });
  for (let i = 0; i < 3; i += 1) {
    await run("answer", { body: { unknown: 1 } });
    await run("other", { body: { unknown: 1 } });
    await run("no-such");
  }
  expect(lines.map(({ event, outcome }) => `${String(event)} ${String(outcome)}`)).toEqual([
    "answer invalid-body",
    "other invalid-body",
    "no-such unknown-event",
  ]);
  await clock.advance(60_000);
  expect(lines.slice(3).map(({ kind, repeated }) => ({ kind, repeated }))).toEqual([
    { kind: "answer: invalid-body", repeated: 2 },
    { kind: "other: invalid-body", repeated: 2 },
    { kind: "unknown event: unknown-event", repeated: 2 },
  ]);
});

describe("answers", () => {
  test("a one-shot with its body", async () => {
    expect(await rig([answer]).run("answer")).toEqual({ body: { output: { message: "m" } } });
  });

  test("an unknown event with its name", async () => {
    expect(error(await rig([answer]).run("no-such"))).toEqual({
      code: "unknown-event",
      message: "no trigger event no-such",
      details: { event: "no-such" },
    });
  });

  test("errors of the handler: its own codes and texts unchanged, everything else as internal", async () => {
    const thrown = (cause: unknown) =>
      // oxlint-disable-next-line typescript/only-throw-error -- a handler may throw anything
      oneShot("e", () => Promise.reject(cause));
    const run = async (cause: unknown) => error(await rig([thrown(cause)]).run("e"));
    expect(await run(new HostError("tool-missing", "x is not installed", { details: { tool: "x" } }))).toEqual({
      code: "tool-missing",
      message: "x is not installed",
      details: { tool: "x" },
    });
    expect(await run(new HostError("engine-refused", "port 80 is taken", { details: { status: 409 } }))).toEqual({
      code: "engine-refused",
      message: "port 80 is taken",
      details: { status: 409 },
    });
    expect(await run(new Error("secret path"))).toEqual({ code: "internal", message: "internal error" });
    expect(await run("text")).toMatchObject({ code: "internal" });
    const circular: Record<string, unknown> = {};
    circular["self"] = circular;
    expect(error(await rig([oneShot("e", () => Promise.resolve(circular))]).run("e"))).toMatchObject({
      code: "internal",
    });
    const large = oneShot("e", () => Promise.resolve("x".repeat(1024 * 1024)));
    expect(error(await rig([large]).run("e"))).toMatchObject({ code: "too-large" });
  });

  test("without wait: true at once, and the result later", async () => {
    const { run, channel, journal } = rig([
      answer,
      oneShot("bad", () => Promise.reject(new HostError("not-found", "n"))),
    ]);
    const id = randomUUID();
    expect(await run("answer", { jti: id, wait: false })).toEqual({ body: true });
    await untilHolds(() => expect(channel.results).toEqual([{ id, reply: { body: { output: { message: "m" } } } }]));
    expect(journal.unacknowledged(10)).toEqual([]);
    expect(await run("bad", { wait: false })).toEqual({ body: true });
    await untilHolds(() => expect(channel.results[1]?.reply).toMatchObject({ error: { code: "not-found" } }));
    expect(error(await run("bad", { wait: false, body: [] }))).toMatchObject({ code: "invalid-body" });
  });

  test("a stream with wait: its text, the exit status as text", async () => {
    const trigger = stream("s", async ({ emit, wait }) => {
      await emit({ kind: "stdout", data: "a\n" });
      await emit({ kind: "stderr", data: `${wait}` });
      return { exitCode: 2 };
    });
    const { run, channel } = rig([trigger]);
    expect(await run("s")).toEqual({ body: { output: { message: "a\ntrue", exitCode: "2", truncated: false } } });
    expect(channel.parts).toEqual([]);
  });

  test("a stream without wait: true, progress, and the result", async () => {
    const trigger = stream("s", async ({ emit }) => {
      await emit({ kind: "stdout", data: "a\n" });
      return { exitCode: 1 };
    });
    const { run, channel } = rig([trigger]);
    const id = randomUUID();
    expect(await run("s", { jti: id, wait: false })).toEqual({ body: true });
    await untilHolds(() => expect(channel.results).toHaveLength(1));
    expect(channel.results).toMatchObject([{ id, reply: { body: { exitCode: 1, truncated: false } } }]);
    expect(channel.parts).toEqual([{ id, seq: 0, kind: "stdout", data: "a\n" }]);
  });

  test("a flood with wait with a part of it, stops the stream, and reports no error", async () => {
    const trigger = stream("s", async ({ emit, signal }) => {
      while (!signal.aborted) await emit({ kind: "stdout", data: "x".repeat(65_536) });
      return { exitCode: 0 };
    });
    const reply = await rig([trigger]).run("s");
    expect(reply).toMatchObject({ body: { output: { exitCode: "0", truncated: true } } });
    expect(Buffer.byteLength(JSON.stringify(reply))).toBeLessThan(1024 * 1024);
  });
});

describe("ends", () => {
  test("at the deadline of the claims or the event, with the output up to then", async () => {
    const byClaim = await rig([hang("s")]).run("s", { deadlineMs: 30 });
    expect(byClaim).toMatchObject({
      error: { code: "timeout", details: { output: { message: "begun\nsummary\n", truncated: false } } },
    });
    expect(error(await rig([hang("s", { deadlineMs: 30 })]).run("s"))).toMatchObject({ code: "timeout" });
    const sleeper = oneShot("o", ({ signal }) => untilAborted(signal).then(() => Promise.reject(new Error("aborted"))));
    expect(error(await rig([sleeper]).run("o", { deadlineMs: 30 }))).toMatchObject({ code: "timeout" });
  });

  test("on a cancel; a cancel of nothing has no effect", async () => {
    const { run, dispatcher } = rig([hang("s")]);
    const id = randomUUID();
    const reply = run("s", { jti: id });
    dispatcher.cancel(randomUUID());
    dispatcher.cancel(id);
    expect(error(await reply)).toMatchObject({ code: "cancelled" });
    dispatcher.cancel(id);
  });

  test("with an answer for a handler that ignores its end, which keeps its slot", async () => {
    const never = oneShot("o", () => new Promise(() => undefined), { exclusive: "o" });
    const { run } = rig([never], { clock: fastClock(100) });
    expect(error(await run("o"))).toMatchObject({ code: "timeout" });
    expect(error(await run("o"))).toMatchObject({ code: "busy" });
  });

  test("with the session, for a stream without a waiting caller; other work continues and reports in the next session", async () => {
    const slow = deferred<unknown>();
    const { dispatcher, journal } = rig([hang("s"), oneShot("slow", () => slow.promise)]);
    const first = new TestChannel();
    dispatcher.attach(first);
    const [streamId, slowId] = [randomUUID(), randomUUID()];
    await dispatcher.run(claims("s", { jti: streamId, wait: false }), first, NOW);
    const reply = dispatcher.run(claims("slow", { jti: slowId }), first, NOW);
    first.end();
    await untilHolds(() => expect(journal.find(streamId)?.reply).toMatchObject({ error: { code: "cancelled" } }));
    slow.resolve({ late: true });
    expect(await reply).toEqual({ body: { late: true } });
    expect(first.results).toEqual([]);
    const next = new TestChannel();
    dispatcher.attach(next);
    await untilHolds(() => expect(journal.unacknowledged(10)).toEqual([]));
    expect(next.results).toMatchObject([
      { id: streamId, reply: { error: { code: "cancelled" } } },
      { id: slowId, reply: { body: { late: true } } },
    ]);
  });

  test("at shutdown with an answer and a journal entry for everything; nothing starts after it", async () => {
    const { run, dispatcher, journal } = rig([hang("s"), hang("t")]);
    const [first, second] = [randomUUID(), randomUUID()];
    const reply = run("s", { jti: first });
    await run("t", { jti: second, wait: false });
    await dispatcher.close();
    expect(error(await reply)).toMatchObject({ code: "interrupted" });
    for (const id of [first, second]) expect(journal.find(id)?.reply).toMatchObject({ error: { code: "interrupted" } });
    expect(error(await run("s"))).toMatchObject({ code: "busy" });
  });
});

test("limits count what really runs", async () => {
  const { run, dispatcher } = rig([hang("s"), answer, ...["a", "b", "c", "d"].map((event) => hang(event))]);
  const replies = ["s", "s", "a", "a", "b", "b", "c", "c"].map((event) => run(event));
  for (const event of ["s", "answer", "d"]) expect(error(await run(event))).toMatchObject({ code: "busy" });
  await dispatcher.close();
  expect(await Promise.all(replies)).toHaveLength(8);
});
