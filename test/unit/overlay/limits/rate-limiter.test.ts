import { describe, expect, it } from "vitest";
import { byteRate, RateLimiter } from "../../../../src/overlay/limits/rate-limiter.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

/** A flow that always has more to read. */
function reader(limiter: RateLimiter, chunk: number) {
  const user = {
    bytes: 0,
    resumeReading() {
      do user.bytes += chunk;
      while (limiter.pass(user, chunk));
    },
  };
  return user;
}

/** A flow whose bytes arrive a moment after its read, as those of a socket do. */
function lateReader(limiter: RateLimiter, clock: FakeClock, chunk: number) {
  const user = {
    bytes: 0,
    resumeReading() {
      clock.after(1, () => {
        user.bytes += chunk;
        if (limiter.pass(user, chunk)) user.resumeReading();
      });
    },
  };
  return user;
}

describe("RateLimiter", () => {
  it("does not limit without a rate", () => {
    const limiter = new RateLimiter(new FakeClock(), undefined);
    expect(limiter.isOpen).toBe(true);
    expect(limiter.pass({ resumeReading: () => undefined }, 1e9)).toBe(true);
  });

  it.each([100_000, 8_000_000, 800_000_000])("holds %d bit/s over ten seconds, in equal shares", async (rate) => {
    const clock = new FakeClock();
    const limiter = new RateLimiter(clock, rate);
    const users = [reader(limiter, 16_384), reader(limiter, 16_384), reader(limiter, 16_384)];
    for (const user of users) user.resumeReading();
    await clock.advance(10_000);
    const total = users.reduce((sum, { bytes }) => sum + bytes, 0);
    const burst = Math.max(65_536, rate / 80);
    expect(total).toBeGreaterThan((rate / 8) * 10 * 0.98);
    expect(total).toBeLessThan((rate / 8) * 10 + burst + 4 * 65_536);
    const shares = users.map(({ bytes }) => bytes / total);
    if (rate > 1e6) for (const share of shares) expect(share).toBeGreaterThan(0.2);
  });

  const rates = [0.5, 1, 2, 5, 10, 100, 1000];
  const cases = rates.flatMap((mbps) => [1, 2, 3, 8, 32].map((flows) => [mbps, flows] as const));
  it.each(cases)("gives %d Mbit/s to %d flows that read with a delay, in equal shares", async (mbps, flows) => {
    const clock = new FakeClock();
    const limiter = new RateLimiter(clock, mbps * 1_000_000);
    const chunk = mbps > 100 ? 262_144 : mbps > 10 ? 65_536 : 9000;
    const users = Array.from({ length: flows }, () => lateReader(limiter, clock, chunk));
    for (const user of users) user.resumeReading();
    // Enough bytes for a share to differ from chance.
    const ms = Math.ceil((200 * chunk * flows * 8) / (mbps * 1000));
    await clock.advance(ms);
    const total = users.reduce((sum, { bytes }) => sum + bytes, 0);
    const expected = (mbps * 1000 * ms) / 8;
    expect(total / expected).toBeGreaterThan(0.97);
    expect(total - Math.max(65_536, mbps * 12_500)).toBeLessThan(expected * 1.03);
    const mean = total / flows;
    for (const { bytes } of users) expect(Math.abs(bytes - mean)).toBeLessThan(mean * 0.1);
  });

  it("passes on the turn of a flow without data", async () => {
    const clock = new FakeClock();
    const limiter = new RateLimiter(clock, 1_000_000);
    const idle = { resumeReading: () => undefined };
    const user = lateReader(limiter, clock, 9000);
    user.resumeReading();
    for (let second = 0; second < 10; second += 1) {
      limiter.pass(idle, 1);
      await clock.advance(1000);
    }
    expect(user.bytes).toBeGreaterThan(1_250_000 * 0.97);
  });

  it("releases waiting flows when the limit is lifted, and forgets those that leave", async () => {
    const clock = new FakeClock();
    const limiter = new RateLimiter(clock, 8000);
    let resumed = 0;
    const stays = { resumeReading: () => void (resumed += 1) };
    const leaves = { resumeReading: () => void (resumed += 100) };
    expect(limiter.pass(stays, 100_000)).toBe(false);
    expect(limiter.pass(leaves, 1)).toBe(false);
    limiter.leave(leaves);
    limiter.setRate(undefined);
    expect(resumed).toBe(1);
    await clock.advance(3_600_000);
    expect(clock.pendingTimers).toBe(0);
  });
});

it("allows a burst of 100 ms of the rate, at least 64 KiB", () => {
  expect(byteRate(8_000_000_000)).toEqual({ perSecond: 1_000_000_000, burst: 100_000_000 });
  expect(byteRate(8000)).toEqual({ perSecond: 1000, burst: 65_536 });
});
