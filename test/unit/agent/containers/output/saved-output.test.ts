import { DatabaseSync } from "node:sqlite";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { outputMigration, OutputSaver, recordsOf } from "../../../../../src/agent/containers/output/saved-output.ts";
import { systemClock } from "../../../../../src/host/clock.ts";
import type { OutputFrame } from "../../../../../src/host/engine/engine.ts";
import type { ContainerOutput } from "../../../../../src/protocol/documents/telemetry.ts";
import { containerState, FakeCompute } from "../../../../support/containers/fake-compute.ts";
import { someTurns } from "../../../../support/until-still.ts";
import { waitFor } from "../../../../support/wait-for.ts";
import { fastClock } from "../../triggers/rig.ts";

const saved = containerState({ savesOutput: true });
const frame = (second: number, text: string): OutputFrame => ({
  stream: "stdout",
  data: Buffer.from(`2026-11-21T12:00:0${second}.000000000Z ${text}\n`),
});

function stage(sql = memory(), clock = fastClock(20)) {
  const compute = new FakeCompute();
  const records: ContainerOutput[] = [];
  const refusals: unknown[] = [];
  const saver = new OutputSaver({
    compute,
    sql,
    clock,
    log: pino({ level: "silent" }),
    append: (more) => records.push(...more),
    onRefused: (error) => refusals.push(error),
  });
  onTestFinished(() => saver.close());
  const text = () => records.map((record) => record.text).join("");
  return { compute, records, saver, text, sql, refusals };
}

function memory(): DatabaseSync {
  const sql = new DatabaseSync(":memory:");
  sql.exec(outputMigration);
  return sql;
}

/** Sends some frames, and then nothing until the run ends. */
async function* running(frames: readonly OutputFrame[], signal: AbortSignal): AsyncGenerator<OutputFrame> {
  yield* frames;
  await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason as Error)));
}

test("records the output of a container while it is wanted", async () => {
  const { compute, records, text } = stage();
  let stopped = 0;
  compute.printed = (_, __, signal) => {
    signal.addEventListener("abort", () => (stopped += 1));
    return running([frame(1, "one"), frame(2, "two")], signal);
  };
  compute.set([saved, containerState({ name: "db", engineId: "fedcba" })]);
  await waitFor("the output", () => text() === "one\ntwo\n");
  expect(records[0]).toEqual({
    container: saved.id,
    name: "web",
    run: "0123456789ab",
    stream: "stdout",
    at: Date.UTC(2026, 10, 21, 12, 0, 1),
    text: "one\ntwo\n",
  });
  expect(compute.requested).toEqual([["output", "0123456789abcdef", undefined]]);
  compute.set([containerState()]);
  await waitFor("the end", () => stopped === 1);
});

test("another agent continues where this one stopped", async () => {
  const first = stage();
  first.compute.printed = (_, __, signal) => running([frame(1, "one")], signal);
  first.compute.set([saved]);
  // Pending output is written at the end.
  await waitFor("the reading", () => first.compute.requested.length === 1);
  await new Promise((resolve) => setImmediate(resolve));
  await first.saver.close();
  expect(first.text()).toBe("one\n");
  const second = stage(first.sql);
  second.compute.set([saved]);
  await waitFor("the reading", () => second.compute.requested.length === 1);
  expect(second.compute.requested).toEqual([["output", "0123456789abcdef", "1795262401.000000001"]]);
});

test("reads an ended container once, and again after its next run", async () => {
  const { compute, text } = stage();
  async function* ended(): AsyncGenerator<OutputFrame> {
    yield frame(1, "done");
  }
  compute.printed = ended;
  const idle = { ...saved, state: "idle" as const, restarts: 1 };
  compute.set([idle]);
  await waitFor("the output", () => text() === "done\n");
  // Longer than the pause before another request, which is 50 ms by this clock.
  await someTurns(100);
  compute.set([idle]);
  await someTurns(100);
  expect(compute.requested).toHaveLength(1);
  compute.set([{ ...idle, restarts: 2 }]);
  await waitFor("the next run", () => compute.requested.length === 2);
});

test("does not read output from before it was wanted", async () => {
  const { compute } = stage();
  compute.set([containerState()]);
  compute.set([saved]);
  await waitFor("the reading", () => compute.requested.length === 1);
  const [, , since] = compute.requested[0] as [string, string, string];
  expect(Number(since)).toBeGreaterThan(Date.now() / 1000 - 60);
});

test("asks a failing engine again, and loses no output to a failing disk", async () => {
  const { compute, text, sql, refusals } = stage();
  sql.exec("DROP TABLE compute_output");
  compute.refusal = new Error("no engine");
  compute.printed = (_, __, signal) => running([frame(1, "late")], signal);
  compute.set([saved]);
  await waitFor("the first try", () => compute.requested.length >= 1);
  compute.refusal = undefined;
  await waitFor("the output", () => text() === "late\n");
  expect(refusals.length).toBeGreaterThan(0);
});

test("reads a container that never stops writing within the limit of its rate", async () => {
  const { compute, records } = stage(memory(), systemClock());
  let given = 0;
  compute.printed = async function* (_: string, __: string | undefined, signal: AbortSignal) {
    for (given = 0; !signal.aborted; given += 1) yield frame(1, "x".repeat(1000));
  };
  compute.set([saved]);
  await waitFor("some output", () => records.length > 0);
  // At most the burst and the frame that fills it were read before the pause.
  expect(given).toBeLessThan(70);
});

test("joins pieces by stream, and splits between characters", () => {
  const piece = (text: string, stream: "stdout" | "stderr" = "stdout") => ({ stream, at: 1, next: "0", text });
  expect(recordsOf([piece("a\n"), piece("b\n"), piece("c\n", "stderr"), piece("d\n")]).map(({ text }) => text)).toEqual(
    ["a\nb\n", "c\n", "d\n"],
  );
  const long = `${"x".repeat(4095)}😀y`;
  const cut = recordsOf([piece(long)]).map(({ text }) => text);
  expect(cut.join("")).toBe(long);
  expect(cut.map(({ length }) => length)).toEqual([4095, 3]);
});
