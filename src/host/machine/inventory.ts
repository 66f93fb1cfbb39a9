import { setTimeout as delay } from "node:timers/promises";
import { z } from "zod";
import { parseStrictJson } from "../../lib/formats/strict-json.ts";
import { Text128 } from "../../protocol/values/values.ts";
import type { Exec } from "../process/exec.ts";

/** Machine data that only helper programs can read if the firmware tables are unreadable. */
export const Inventory = z.object({
  manufacturer: Text128.optional(),
  model: Text128.optional(),
  /** The hypervisor's own name, such as `KVM`. */
  virtualHost: Text128.optional(),
});
export type Inventory = z.infer<typeof Inventory>;

/** The verb that prints an inventory. */
const INVENTORY_VERB = "inventory";
const DEADLINE_MS = 5000;

/** Takes the inventory, which starts some short-lived processes. Omits values that take longer than 5 s. */
export async function takeInventory(signal: AbortSignal, deadlineMs = DEADLINE_MS): Promise<Inventory> {
  const { default: information } = await import("systeminformation");
  const system = await withDeadline(() => information.system(), deadlineMs, signal);
  const known = { manufacturer: system?.manufacturer, model: system?.model, virtualHost: system?.virtualHost };
  return Inventory.parse(Object.fromEntries(Object.entries(known).flatMap(([name, value]) => nameOf(name, value))));
}

/**
 * Takes the inventory in a process of its own, because the library starts shells and fills memory. Returns an empty inventory on
 * failure; it only improves a description.
 */
export async function readInventory(exec: Exec, signal: AbortSignal): Promise<Inventory> {
  const [runtime, program] = process.argv;
  try {
    const args = [...process.execArgv, program ?? "", INVENTORY_VERB];
    const options = { signal, deadlineMs: DEADLINE_MS + 5000, maxOutputBytes: 16_384 };
    const { stdout } = await exec.run(runtime ?? process.execPath, args, options);
    return Inventory.parse(parseStrictJson(stdout, { maxBytes: 16_384, maxDepth: 4 }));
  } catch {
    return {};
  }
}

/** Returns the result, or undefined if the call fails, times out or is aborted. */
export async function withDeadline<T>(
  call: () => Promise<T>,
  deadlineMs: number,
  signal: AbortSignal,
): Promise<T | undefined> {
  const done = new AbortController();
  const wait = delay(deadlineMs, undefined, { signal: AbortSignal.any([signal, done.signal]) });
  try {
    const result = (async () => call())();
    return await Promise.race([result.catch(() => undefined), wait.catch(() => undefined)]);
  } finally {
    done.abort();
  }
}

function nameOf(name: string, value: unknown): [string, string][] {
  const text = typeof value === "string" ? value.trim().slice(0, 128) : "";
  return text === "" || text === "-" ? [] : [[name, text]];
}
