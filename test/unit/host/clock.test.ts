import { expect, test } from "vitest";
import { systemClock, wallTimes } from "../../../src/host/clock.ts";
import { FakeClock } from "../../support/fake-clock.ts";

test("measures, waits, and cancels a wait", async () => {
  const clock = systemClock();
  const before = clock.elapsed();
  let rang = 0;
  const cancel = clock.after(1, () => (rang += 1));
  cancel();
  await new Promise<void>((resolve) => void clock.after(5, resolve));
  await clock.sleep(1);
  expect(rang).toBe(0);
  expect(clock.elapsed()).toBeGreaterThan(before);
  expect(Math.abs(clock.now() - Date.now())).toBeLessThan(60_000);
  await expect(clock.sleep(60_000, AbortSignal.abort(new Error("stop")))).rejects.toThrow();
});

const DAY_MS = 24 * 3600 * 1000;

test.each([
  ["forwards", DAY_MS],
  ["backwards", -DAY_MS],
])("a time stamp keeps its age when the clock is set %s", async (_way, ms) => {
  const clock = new FakeClock();
  const wall = wallTimes(clock);
  await clock.advance(1000);
  const at = clock.elapsed();
  expect(wall.of(at)).toBe(clock.now());
  await clock.advance(5000);
  clock.setWall(clock.now() + ms);
  expect(clock.now() - wall.of(at)).toBe(5000);
  clock.setWall(clock.now() + 999);
  expect(clock.now() - wall.of(at)).toBe(5999);
});

test("a time stamp is not before the Unix epoch", () => {
  expect(wallTimes(new FakeClock(0)).of(-5)).toBe(0);
});
