import { expect, test } from "vitest";
import { isMet, median, ratioOf, skip, summary, table, type Figure } from "../../../../scripts/benches/figures.ts";

const figure = (change: Partial<Figure>): Figure => ({ what: "memory", value: 10, unit: "MB", ...change });

test.each([
  [[3], 3],
  [[9, 1, 5], 5],
  [[4, 1, 3, 2], 2.5],
  [[10, 9, 100], 10],
])("the median of %j is %d", (values, expected) => {
  const before = [...values];
  expect(median(values)).toBe(expected);
  expect(values).toEqual(before);
});

test("the median of nothing is NaN", () => {
  expect(median([])).toBeNaN();
});

test("a ratio needs a peer that is not 0", () => {
  expect(ratioOf(figure({ peer: { name: "it", value: 4 } }))).toBe(2.5);
  expect(ratioOf(figure({ peer: { name: "it", value: 0 } }))).toBeUndefined();
  expect(ratioOf(figure({}))).toBeUndefined();
});

test("a separately measured ratio precedes that of the values", () => {
  expect(ratioOf(figure({ peer: { name: "it", value: 5 }, ratio: 3 }))).toBe(3);
  expect(isMet(figure({ peer: { name: "it", value: 5 }, ratio: 3, bar: { of: "ratio", most: 2.5 } }))).toBe(false);
});

test.each<[string, Partial<Figure>, boolean]>([
  ["no bar", {}, true],
  ["at the upper bound", { bar: { of: "value", most: 10 } }, true],
  ["above it", { bar: { of: "value", most: 9.99 } }, false],
  ["at the lower bound", { bar: { of: "ratio", least: 2 }, peer: { name: "it", value: 5 } }, true],
  ["below it", { bar: { of: "ratio", least: 2 }, peer: { name: "it", value: 5.1 } }, false],
  ["a ratio above its bound", { bar: { of: "ratio", most: 1.5 }, peer: { name: "it", value: 5 } }, false],
  ["a ratio to nothing", { bar: { of: "ratio", most: 1.5 } }, false],
  ["what could not be measured", { value: Number.NaN, bar: { of: "value", most: 80 } }, false],
])("%s", (_name, change, expected) => {
  expect(isMet(figure(change))).toBe(expected);
});

test("the table aligns its columns and names missed targets", () => {
  const lines = table([
    figure({ value: 79.68, peer: { name: "an empty Node", value: 43.4 }, bar: { of: "value", most: 80 } }),
    figure({ what: "rate", value: 0.25, unit: "", bar: { of: "value", least: 2 } }),
  ]).split("\n");
  expect(lines).toEqual([
    "what    here     peer     the peer is    ratio   bar",
    "memory  79.7 MB  43.4 MB  an empty Node  1.84 ×  ≤ 80 MB  met",
    "rate    0.250                                    ≥ 2      MISSED",
  ]);
});

test("the last line sums up, and names missed targets", () => {
  const kept = figure({ bar: { of: "value", most: 10 } });
  const missed = figure({ what: "rate", bar: { of: "value", most: 9 } });
  expect(summary("idle", [kept, figure({})])).toBe("bench idle: 1 of 1 bars met");
  expect(summary("idle", [kept, missed])).toBe("bench idle: 1 of 2 bars met; missed: rate");
});

test("a benchmark that cannot run here meets and misses no target, and reports why", () => {
  const skipped: Figure = { ...skip("nebula", "no TUN device"), bar: { of: "ratio", least: 1 } };
  expect(isMet(skipped)).toBe(true);
  expect(table([figure({ value: 1 }), skipped]).split("\n")[2]).toMatch(/^nebula +SKIP +no TUN device$/);
  expect(summary("overlay", [figure({ bar: { of: "value", most: 10 } }), skipped])).toBe(
    "bench overlay: 1 of 1 bars met; skipped: nebula",
  );
});
