import { expect, test } from "vitest";
import type { Exec } from "../../../../src/host/process/exec.ts";
import { Inventory, readInventory, takeInventory, withDeadline } from "../../../../src/host/machine/inventory.ts";

const never = new AbortController().signal;

test("reports this machine or nothing", async () => {
  const inventory = await takeInventory(never, 15_000);
  expect(Inventory.parse(inventory)).toEqual(inventory);
  expect(Object.values(inventory).every((text) => text?.trim() !== "")).toBe(true);
});

test("is empty when its process fails", async () => {
  const failing: Pick<Exec, "run"> = { run: () => Promise.reject(new Error("no")) };
  const spawn = (): never => {
    throw new Error("not used");
  };
  expect(await readInventory({ ...failing, spawn }, never)).toEqual({});
  const result = { exitCode: 0, signal: undefined, stderr: "", truncated: false };
  const answering = (stdout: string): Exec => ({ run: () => Promise.resolve({ ...result, stdout }), spawn });
  expect(await readInventory(answering("not JSON"), never)).toEqual({});
  expect(await readInventory(answering('{"virtualHost":7}'), never)).toEqual({});
  expect(await readInventory(answering('{"virtualHost":"KVM","other":1}'), never)).toEqual({ virtualHost: "KVM" });
});

test("a call that fails, throws at once, hangs or is aborted gives nothing", async () => {
  expect(await withDeadline(() => Promise.reject(new Error("no")), 1000, never)).toBeUndefined();
  const throwing = (): Promise<number> => {
    throw new Error("no");
  };
  expect(await withDeadline(throwing, 1000, never)).toBeUndefined();
  expect(await withDeadline(() => new Promise(() => {}), 5, never)).toBeUndefined();
  expect(await withDeadline(() => new Promise(() => {}), 60_000, AbortSignal.abort())).toBeUndefined();
  expect(await withDeadline(() => Promise.resolve(7), 1000, never)).toBe(7);
});
