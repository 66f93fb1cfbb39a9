import { describe, expect, it } from "vitest";
import { redialDelay } from "../../../../../src/overlay/mesh/paths/backoff.ts";

const middle = (): number => 0.5;

describe("the backoff of a path", () => {
  it("doubles from one second to sixty and stays there", () => {
    const delays = [1, 2, 3, 4, 5, 6, 7, 8, 1000].map((failures) => redialDelay(failures, false, middle));
    expect(delays).toEqual([1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000]);
  });

  it("has a jitter of a fifth", () => {
    expect(redialDelay(2, false, () => 0)).toBe(1600);
    expect(redialDelay(2, false, () => 0.999_999)).toBeCloseTo(2400, 1);
    expect(redialDelay(9, false, () => 0.999_999)).toBeCloseTo(72_000, 0);
  });

  it("is zero for a path that was never dialled, and short for one that was up", () => {
    expect(redialDelay(0, false, middle)).toBe(0);
    const delays = Array.from({ length: 12 }, (_, failures) => redialDelay(failures, true, middle));
    expect(delays).toEqual([250, 500, 500, 500, 500, 500, 500, 1000, 1000, 1000, 2000, 4000]);
    expect(redialDelay(0, true, () => 0.999)).toBeLessThan(500);
  });
});
