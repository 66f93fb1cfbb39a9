import { expect, test } from "vitest";
import { fitInto } from "../../../../src/cli/bundle/fit.ts";
import type { Part } from "../../../../src/cli/bundle/part.ts";

const part = (name: string, lines: number, isLog: boolean): Part => ({
  name,
  about: "",
  isLog,
  text: Array.from({ length: lines }, (_, at) => `line ${String(at).padStart(4, "0")}\n`).join(""),
  cutBytes: 0,
});
const LINE = 10;

test("keeps what fits", () => {
  const parts = [part("a", 10, true), part("b", 10, false)];
  expect(fitInto(parts, 20 * LINE)).toEqual({ parts, missing: [] });
});

test("cuts the largest log first, and keeps its end", () => {
  const { parts, missing } = fitInto(
    [part("small", 10, true), part("large", 100, true), part("b", 10, false)],
    60 * LINE,
  );
  expect(parts.map(({ name, cutBytes }) => [name, cutBytes > 0])).toEqual([
    ["small", false],
    ["large", true],
    ["b", false],
  ]);
  expect(parts[1]?.text).toMatch(/^line \d{4}\n[\s\S]*line 0099\n$/);
  expect(parts.reduce((sum, { text }) => sum + text.length, 0)).toBeLessThanOrEqual(60 * LINE);
  expect((parts[1]?.cutBytes ?? 0) + (parts[1]?.text.length ?? 0)).toBe(100 * LINE);
  expect(missing).toEqual([]);
});

test("names a part that does not fit", () => {
  const { parts, missing } = fitInto([part("a", 10, false), part("b", 100, false)], 20 * LINE);
  expect(parts.map(({ name }) => name)).toEqual(["a"]);
  expect(missing).toMatchObject([{ name: "b" }]);
});
