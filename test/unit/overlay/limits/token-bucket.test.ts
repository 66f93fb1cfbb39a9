import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { TokenBucket } from "../../../../src/overlay/limits/token-bucket.ts";

describe("TokenBucket", () => {
  it("has a burst of 100 ms, and of 64 KiB at least", () => {
    expect(new TokenBucket(8_000_000_000, 0).available(0)).toBe(100_000_000);
    expect(new TokenBucket(8000, 0).available(0)).toBe(65_536);
  });

  it("goes into debt for what was read, and says how long that takes to pay", () => {
    const bucket = new TokenBucket(8_000_000, 0); // 1000 bytes a millisecond, burst 100 000
    expect(bucket.take(99_999, 0)).toBe(true);
    expect(bucket.take(50_001, 0)).toBe(false);
    expect(bucket.waitFor(1, 0)).toBe(51);
    expect(bucket.available(50)).toBe(0);
    expect(bucket.take(1, 51)).toBe(true);
  });

  it("takes a datagram whole or not at all", () => {
    const bucket = new TokenBucket(8000, 0);
    expect(bucket.takeIfAvailable(65_000, 0)).toBe(true);
    expect(bucket.takeIfAvailable(1000, 0)).toBe(false);
    expect(bucket.takeIfAvailable(1000, 464)).toBe(true);
  });

  it("never lets more pass than the rate and one burst, however it is asked", () => {
    const asks = fc.array(fc.tuple(fc.integer({ min: 0, max: 500 }), fc.integer({ min: 1, max: 4096 })), {
      maxLength: 200,
    });
    fc.assert(
      fc.property(asks, (list) => {
        const bucket = new TokenBucket(800_000, 0); // 100 bytes a millisecond
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
