import { expect, test, vi } from "vitest";
import { BufferedOutput, StreamedOutput } from "../../../../../src/agent/triggers/execution/output.ts";
import { systemClock } from "../../../../../src/host/clock.ts";
import { TestChannel } from "../rig.ts";
import { untilHolds } from "../../../../support/until-holds.ts";
import { someTurns } from "../../../../support/until-still.ts";

const clock = systemClock();
const MIB = 1024 * 1024;

function streamed(signal = new AbortController().signal) {
  const channel = new TestChannel();
  const onFull = vi.fn<() => void>();
  return { channel, onFull, output: new StreamedOutput({ id: "t", channel, clock, signal, onFull }) };
}

test("buffered: all kinds in order as one text, NUL dropped, terminal sequences kept", async () => {
  const output = new BufferedOutput(() => undefined);
  await output.write({ kind: "stdout", data: "a\0b\u001B[1m" });
  await output.write({ kind: "json", data: { n: 1 } });
  await output.write({ kind: "percent", data: 5 });
  await output.write({ kind: "stderr", data: "\rerr" });
  expect(output.text).toBe('ab\u001B[1m{"n":1}\n\rerr');
  expect(output.isTruncated).toBe(false);
});

test.each(["x", "\u0001", "€", "😀", '"'])("buffered: cuts a flood of %j so that it fits one message", async (unit) => {
  const onFull = vi.fn<() => void>();
  const output = new BufferedOutput(onFull);
  for (let sent = 0; sent < MIB; sent += 60_000) await output.write({ kind: "stdout", data: unit.repeat(60_000) });
  const size = Buffer.byteLength(JSON.stringify(output.text));
  expect(size).toBeLessThanOrEqual(MIB - 16 * 1024 + 2);
  expect(size).toBeGreaterThan(MIB - 17 * 1024);
  expect(output.text.replaceAll(unit, "")).toBe("");
  expect(output.isTruncated).toBe(true);
  expect(onFull).toHaveBeenCalledOnce();
});

test("streamed: whole lines at once, the rest after a moment, numbered, each kind separately", async () => {
  const { channel, output } = streamed();
  await output.write({ kind: "stdout", data: "one\ntw" });
  expect(channel.parts).toEqual([{ id: "t", seq: 0, kind: "stdout", data: "one\n" }]);
  await untilHolds(() => expect(channel.parts).toHaveLength(2));
  await output.write({ kind: "stdout", data: "o" });
  await output.write({ kind: "stderr", data: "bad" });
  await output.write({ kind: "json", data: { n: 1 } });
  await output.write({ kind: "percent", data: 50 });
  await output.write({ kind: "stdout", data: "last" });
  await output.close();
  expect(channel.parts.slice(1)).toEqual([
    { id: "t", seq: 1, kind: "stdout", data: "tw" },
    { id: "t", seq: 2, kind: "stdout", data: "o" },
    { id: "t", seq: 3, kind: "stderr", data: "bad" },
    { id: "t", seq: 4, kind: "json", data: { n: 1 } },
    { id: "t", seq: 5, kind: "percent", data: 50 },
    { id: "t", seq: 6, kind: "stdout", data: "last" },
  ]);
});

test("streamed: pieces of at most 16 KiB that never split a character", async () => {
  const { channel, output } = streamed();
  const text = `a${"😀é".repeat(20_000)}`;
  await output.write({ kind: "stdout", data: text });
  await output.close();
  expect(channel.text).toBe(text);
  const sizes = channel.texts.map((text) => Buffer.byteLength(text));
  expect(Math.max(...sizes)).toBeLessThanOrEqual(16 * 1024);
  expect(Math.min(...sizes.slice(0, -1))).toBeGreaterThan(16 * 1024 - 4);
});

test("streamed: a full channel applies backpressure to the writer", async () => {
  const { channel, output } = streamed();
  channel.block();
  let isWritten = false;
  const writing = output.write({ kind: "stdout", data: "line\n" }).then(() => {
    isWritten = true;
  });
  await someTurns();
  expect([isWritten, channel.parts]).toEqual([false, []]);
  channel.unblock();
  await writing;
  expect(channel.text).toBe("line\n");
});

test("streamed: does not wait for a channel after the end of the trigger or the channel", async () => {
  const control = new AbortController();
  const { channel, output } = streamed(control.signal);
  channel.block();
  const writing = output.write({ kind: "stdout", data: "line\n" });
  control.abort();
  await writing;
  expect([channel.parts, output.isTruncated]).toEqual([[], true]);

  const other = streamed();
  other.channel.block();
  const waiting = other.output.write({ kind: "stdout", data: "line\n" });
  other.channel.end();
  await waiting;
  await other.output.write({ kind: "stdout", data: "more\n" });
  expect(other.channel.parts).toEqual([]);
});

test("streamed: at most 50 MiB", async () => {
  const { channel, output, onFull } = streamed();
  const line = `${"x".repeat(MIB - 1)}\n`;
  for (let i = 0; i < 51; i += 1) await output.write({ kind: "stdout", data: line });
  expect(channel.text.length).toBe(50 * MIB);
  expect(onFull).toHaveBeenCalledOnce();
  expect(output.isTruncated).toBe(true);
});
