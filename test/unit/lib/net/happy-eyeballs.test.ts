import { describe, expect, test } from "vitest";
import { interleaveFamilies, staggered } from "../../../../src/lib/net/happy-eyeballs.ts";
import { deferred, type Deferred } from "../../../support/deferred.ts";
import { FakeClock, settle } from "../../../support/fake-clock.ts";

test.each([
  [[], []],
  [["10.0.0.1"], ["10.0.0.1"]],
  [
    ["::1", "::2", "::3", "10.0.0.1"],
    ["::1", "10.0.0.1", "::2", "::3"],
  ],
  [
    ["10.0.0.1", "10.0.0.2", "::1", "::2"],
    ["10.0.0.1", "::1", "10.0.0.2", "::2"],
  ],
])("alternates families, starting with that of the first: %j", (addresses, ordered) => {
  expect(interleaveFamilies(addresses)).toEqual(ordered);
});

/** Attempts settled by hand, on a fake clock. */
function race(count: number) {
  const clock = new FakeClock();
  const owner = new AbortController();
  const discarded: string[] = [];
  const begun: Deferred<string>[] = [];
  const signals: AbortSignal[] = [];
  const attempts = Array.from({ length: count }, () => (signal: AbortSignal) => {
    const attempt = deferred<string>();
    signal.addEventListener("abort", () => attempt.reject(new Error("aborted")));
    begun.push(attempt);
    signals.push(signal);
    return attempt.promise;
  });
  const result = staggered(attempts, {
    clock,
    staggerMs: 250,
    signal: owner.signal,
    discard: (late) => void discarded.push(late),
  });
  result.catch(() => undefined);
  return { clock, owner, discarded, begun, signals, result };
}

describe("staggered attempts", () => {
  test("start one after another while none succeeds", async () => {
    const { clock, begun } = race(3);
    expect(begun).toHaveLength(1);
    await clock.advance(249);
    expect(begun).toHaveLength(1);
    await clock.advance(1);
    expect(begun).toHaveLength(2);
    await clock.advance(250);
    expect(begun).toHaveLength(3);
    expect(clock.pendingTimers).toBe(0);
  });

  test("continue at once when one fails", async () => {
    const { clock, begun, result } = race(2);
    begun[0]?.reject(new Error("refused"));
    await settle();
    expect(begun).toHaveLength(2);
    begun[1]?.resolve("second");
    await expect(result).resolves.toBe("second");
    expect(clock.pendingTimers).toBe(0);
  });

  test("end with the first success, which aborts the others and leaves no timer", async () => {
    const { clock, begun, signals, result } = race(3);
    await clock.advance(250);
    begun[1]?.resolve("second");
    await expect(result).resolves.toBe("second");
    expect(signals[0]?.aborted).toBe(true);
    expect(clock.pendingTimers).toBe(0);
    await clock.advance(10_000);
    expect(begun).toHaveLength(2);
  });

  test("discard a late success", async () => {
    const clock = new FakeClock();
    const discarded: string[] = [];
    const late = deferred<string>();
    const attempts = [() => late.promise, () => Promise.resolve("quick")];
    const { signal } = new AbortController();
    const result = staggered(attempts, { clock, staggerMs: 1, signal, discard: (value) => void discarded.push(value) });
    await clock.advance(1);
    await expect(result).resolves.toBe("quick");
    late.resolve("late");
    await settle();
    expect(discarded).toEqual(["late"]);
  });

  test("reject with the first error when all have failed", async () => {
    const { clock, begun, result } = race(2);
    await clock.advance(250);
    begun[1]?.reject(new Error("one"));
    await settle();
    begun[0]?.reject(new Error("two"));
    await expect(result).rejects.toThrow("one");
  });

  test("reject when aborted, and start no other", async () => {
    const { clock, owner, begun, result } = race(3);
    owner.abort();
    await expect(result).rejects.toThrow("aborted");
    await clock.advance(10_000);
    expect(begun).toHaveLength(1);
    expect(clock.pendingTimers).toBe(0);
  });

  test("reject without an address", async () => {
    await expect(race(0).result).rejects.toThrow("no address");
  });
});
