import { expect, test } from "vitest";
import { LineCap } from "../../../../../src/agent/triggers/execution/line-cap.ts";

const cap = (perSecond = 2, maxBytes = 1000): LineCap => new LineCap({ perSecond, maxBytes });

test("passes only whole lines, wherever they were split", () => {
  const lines = cap();
  expect(lines.take("on", 0)).toEqual({ lines: "", note: "" });
  expect(lines.take("e\ntw", 0)).toEqual({ lines: "one\n", note: "" });
  expect(lines.end()).toEqual({ lines: "tw\n", note: "" });
  expect(lines.end()).toEqual({ lines: "", note: "" });
});

test("drops what exceeds the limit of a second, and reports it afterwards", () => {
  const lines = cap();
  expect(lines.take("1\n2\n3\n4\n", 5000)).toEqual({ lines: "1\n2\n", note: "" });
  expect(lines.take("5\n", 5999)).toEqual({ lines: "", note: "" });
  expect(lines.take("6\n", 6000)).toEqual({ lines: "6\n", note: "3 lines dropped: more than 2 in a second\n" });
  expect(lines.take("7\n8\n", 6001)).toEqual({ lines: "7\n", note: "" });
  expect(lines.end().note).toBe("1 lines dropped: more than 2 in a second\n");
});

test("passes nothing after a number of bytes", () => {
  const lines = cap(100, 6);
  expect(lines.take("ab\ncd\nef\n", 0).lines).toBe("ab\ncd\n");
  expect(lines.isFull).toBe(true);
  expect(lines.take("x\n", 9999).lines).toBe("");
});

test("cuts a line without end, within bounded memory", () => {
  const lines = cap(100, 1_000_000);
  for (let turn = 0; turn < 10; turn += 1) lines.take("x".repeat(10_000), 0);
  expect(lines.take("\n", 0).lines).toHaveLength(16 * 1024 + 1);
});
