import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { TokenBucket } from "../../../../src/lib/async/token-bucket.ts";

describe("TokenBucket", () => {
  it("starts with a burst, and never has more", () => {
    const bucket = new TokenBucket({ perSecond: 10, burst: 5 }, 0);
    expect(bucket.available(0)).toBe(5);
    expect(bucket.available(60_000)).toBe(5);
  });

  it("goes into debt, and reports how long until it is paid", () => {
    const bucket = new TokenBucket({ perSecond: 1_000_000, burst: 100_000 }, 0);
    expect(bucket.take(99_999, 0)).toBe(true);
    expect(bucket.take(50_001, 0)).toBe(false);
    expect(bucket.waitFor(1, 0)).toBe(51);
    expect(bucket.available(50)).toBe(0);
    expect(bucket.take(1, 51)).toBe(true);
  });

  it("takes all tokens or none", () => {
    const bucket = new TokenBucket({ perSecond: 1000, burst: 65_536 }, 0);
    expect(bucket.takeIfAvailable(65_000, 0)).toBe(true);
    expect(bucket.takeIfAvailable(1000, 0)).toBe(false);
    expect(bucket.takeIfAvailable(1000, 464)).toBe(true);
  });

  it("never passes more than the rate and one burst", () => {
    const asks = fc.array(fc.tuple(fc.integer({ min: 0, max: 500 }), fc.integer({ min: 1, max: 4096 })), {
      maxLength: 200,
    });
    fc.assert(
      fc.property(asks, (list) => {
        const bucket = new TokenBucket({ perSecond: 100_000, burst: 65_536 }, 0);
        let now = 0;
        let passed = 0;
        for (const [wait, bytes] of list) {
          now += wait;
          if (bucket.takeIfAvailable(bytes, now)) passed += bytes;
        }
        expect(passed).toBeLessThanOrEqual(65_536 + now * 100);
      }),
    );
  });
});
