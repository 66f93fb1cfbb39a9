import { expect, test } from "vitest";
import { systemClock } from "../../../src/host/clock.ts";

test("the machine's clock measures, waits, and takes a wait back", async () => {
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
