import { expect, test } from "vitest";
import { timedLines } from "../../../../../src/agent/containers/output/timed-lines.ts";

const T1 = "2026-11-21T12:00:00.123456789Z ";
const T2 = "2026-11-21T12:00:01.5Z ";
const AT1 = Date.UTC(2026, 10, 21, 12) + 123;
const out = (data: string | Buffer) => ({ stream: "stdout" as const, data: Buffer.from(data) });

/** Splits the text in two at every place. */
test("strips the times of lines, however they are split", () => {
  const whole = Buffer.from(`${T1}grün\n${T2}two\n${T2}\n`);
  for (let cut = 0; cut <= whole.length; cut += 1) {
    const linesOf = timedLines();
    const pieces = [...linesOf(out(whole.subarray(0, cut))), ...linesOf(out(whole.subarray(cut)))];
    expect(pieces.map(({ text }) => text).join("")).toBe("grün\ntwo\n\n");
    expect(pieces[0]).toMatchObject({ at: AT1, next: "1795262400.123456790" });
    expect(pieces.at(-1)).toMatchObject({ at: Date.UTC(2026, 10, 21, 12, 0, 1, 500), next: "1795262401.500000001" });
  }
});

test("splits a very long line into parts with a time each, between characters or not", () => {
  const linesOf = timedLines();
  const [one, two] = [Buffer.from("ü").subarray(0, 1), Buffer.from("ü").subarray(1)];
  const pieces = [
    ...linesOf(out(Buffer.concat([Buffer.from(`${T1}a`), one]))),
    ...linesOf(out(Buffer.concat([Buffer.from(T2), two, Buffer.from("b\n")]))),
    ...linesOf(out(`${T2}c\n`)),
  ];
  expect(pieces.map(({ text }) => text).join("")).toBe("aüb\nc\n");
});

test("keeps the two streams apart, and passes lines without a time as text", () => {
  const linesOf = timedLines();
  const error = { stream: "stderr" as const, data: Buffer.from(`${T2}err\n`) };
  const pieces = [
    ...linesOf(out(`${T1}half`)),
    ...linesOf(error),
    ...linesOf(out(" line\n")),
    ...linesOf(out("2026 is a year\n")),
  ];
  expect(pieces.map(({ stream, text }) => [stream, text])).toEqual([
    ["stdout", "half"],
    ["stderr", "err\n"],
    ["stdout", " line\n"],
    ["stdout", "2026 is a year\n"],
  ]);
});

test("one nanosecond later may be the next second", () => {
  const [piece] = timedLines()(out("2026-11-21T12:00:00.999999999Z x\n"));
  expect(piece?.next).toBe("1795262401.000000000");
});
