import { expect, test } from "vitest";
import type { TransferEvent } from "../../../src/protocol/triggers/transfer.ts";
import { Meter } from "../../../src/transfer/meter.ts";
import { FakeClock } from "../../support/fake-clock.ts";

const LIMITS = { minBytesPerSecond: 100, stallMs: 30_000, maxMs: 200_000 };

function metered(limits: Partial<ConstructorParameters<typeof Meter>[0]["limits"]> = {}) {
  const clock = new FakeClock();
  const events: TransferEvent[] = [];
  const failures: string[] = [];
  const meter = new Meter({ clock, limits: { ...LIMITS, ...limits }, emit: (event) => void events.push(event) });
  return { clock, events, failures, meter, fail: (error: { code: string }) => void failures.push(error.code) };
}

test("reports progress twice a second while bytes move, with the rate of the last seconds", async () => {
  const { clock, events, meter, fail } = metered();
  meter.bytes = 1000;
  meter.total = 9000;
  meter.watch(fail);
  meter.add(500);
  await clock.advance(500);
  await clock.advance(1000);
  meter.add(250);
  await clock.advance(500);
  expect(events).toEqual([
    { is: "progress", bytes: 1500, total: 9000, rate: 1000 },
    { is: "progress", bytes: 1750, total: 9000, rate: 375 },
  ]);
});

test("fails once when nothing moves for too long", async () => {
  const { clock, failures, meter, fail } = metered();
  meter.watch(fail);
  await clock.advance(20_000);
  meter.add(10_000);
  await clock.advance(30_000);
  expect(failures).toEqual([]);
  await clock.advance(500);
  expect(failures).toEqual(["stalled"]);
  await clock.advance(60_000);
  expect(failures).toEqual(["stalled"]);
});

test("a byte now and then is too slow after a minute, and not before", async () => {
  const { clock, failures, meter, fail } = metered();
  meter.watch(fail);
  for (let second = 0; second < 59; second += 1) {
    meter.add(99);
    await clock.advance(1000);
  }
  expect(failures).toEqual([]);
  meter.add(99);
  await clock.advance(1000);
  expect(failures).toEqual(["too-slow"]);
});

test("counts only the last minute", async () => {
  const { clock, failures, meter, fail } = metered();
  meter.watch(fail);
  meter.add(1_000_000);
  for (let second = 0; second < 59; second += 1) {
    await clock.advance(1000);
    meter.add(50);
  }
  expect(failures).toEqual([]);
  await clock.advance(2000);
  expect(failures).toEqual(["too-slow"]);
});

test("continues at the lowest rate", async () => {
  const { clock, failures, meter, fail } = metered();
  meter.watch(fail);
  for (let second = 0; second < 150; second += 1) {
    meter.add(100);
    await clock.advance(1000);
  }
  expect(failures).toEqual([]);
});

test("limits the total time", async () => {
  const { clock, failures, meter, fail } = metered();
  meter.limit(fail);
  await clock.advance(199_999);
  expect(failures).toEqual([]);
  await clock.advance(1);
  expect(failures).toEqual(["too-long"]);
});

test("a meter that has ended reports nothing", async () => {
  const { clock, events, failures, meter, fail } = metered();
  const stop = meter.watch(fail);
  meter.add(1);
  stop();
  await clock.advance(100_000);
  expect([events, failures]).toEqual([[], []]);
});

test("limits the rate of all transfers together, and its pauses do not count as stalled", async () => {
  const { clock, failures, meter, fail } = metered({ maxBytesPerSecond: 1000, minBytesPerSecond: 0 });
  expect(meter.pieceBytes(1_000_000)).toBe(4096);
  meter.watch(fail);
  meter.add(20_000);
  meter.add(20_000);
  expect(meter.waitMs()).toBe(40_000);
  await clock.advance(39_000);
  expect(meter.waitMs()).toBe(1000);
  await clock.advance(2000);
  expect(meter.waitMs()).toBe(0);
  expect(failures).toEqual([]);
});

test("does not wait without a rate limit", () => {
  const { meter } = metered();
  meter.add(1e9);
  expect([meter.waitMs(), meter.pieceBytes(1_000_000)]).toEqual([0, 1_000_000]);
});
