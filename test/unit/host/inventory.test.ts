import { expect, test } from "vitest";
import { takeInventory, withDeadline } from "../../../src/host/inventory.ts";

const never = new AbortController().signal;

test("names the processor of this machine", async () => {
  const inventory = await takeInventory(never, 15_000);
  expect(inventory.physicalCores).toBeGreaterThan(0);
  expect(Array.isArray(inventory.disks)).toBe(true);
});

test("a call that fails, throws at once, hangs or is no longer wanted gives nothing", async () => {
  expect(await withDeadline(() => Promise.reject(new Error("no")), 1000, never)).toBeUndefined();
  const throwing = (): Promise<number> => {
    throw new Error("no");
  };
  expect(await withDeadline(throwing, 1000, never)).toBeUndefined();
  expect(await withDeadline(() => new Promise(() => {}), 5, never)).toBeUndefined();
  expect(await withDeadline(() => new Promise(() => {}), 60_000, AbortSignal.abort())).toBeUndefined();
  expect(await withDeadline(() => Promise.resolve(7), 1000, never)).toBe(7);
});
