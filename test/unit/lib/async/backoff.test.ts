import fc from "fast-check";
import { expect, test } from "vitest";
import { backoff, jitter } from "../../../../src/lib/async/backoff.ts";

test("delays grow from the first to the last, and stay there", () => {
  const delays = (failures: readonly number[], factor?: number) =>
    failures.map((n) => backoff(n, { firstMs: 100, maxMs: 1000, ...(factor === undefined ? {} : { factor }) }));
  expect(delays([0, 1, 2, 3, 4, 5, 1e9])).toEqual([100, 100, 200, 400, 800, 1000, 1000]);
  expect(delays([1, 2, 3], 3)).toEqual([100, 300, 900]);
});

test("jitter stays between its bounds, and is the whole of them", () => {
  expect([0, 0.5, 1].map((share) => jitter(1000, [0.8, 1.2], () => share))).toEqual([800, 1000, 1200]);
  fc.assert(
    fc.property(fc.double({ min: 0, max: 1, noNaN: true }), (share) => {
      const ms = jitter(1000, [0.5, 1], () => share);
      expect(ms).toBeGreaterThanOrEqual(500);
      expect(ms).toBeLessThanOrEqual(1000);
    }),
  );
});
