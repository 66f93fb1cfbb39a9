import { setTimeout as delay } from "node:timers/promises";
import { z } from "zod";
import { parseStrictJson } from "../../lib/formats/strict-json.ts";
import { Text128 } from "../../protocol/values/values.ts";
import type { Exec } from "../process/exec.ts";

/** What a machine without readable firmware tables says of itself only to those who start programs to ask. */
export const Inventory = z.object({
  manufacturer: Text128.optional(),
  model: Text128.optional(),
  /** The hypervisor by its own name, such as `KVM`. */
  virtualHost: Text128.optional(),
});
export type Inventory = z.infer<typeof Inventory>;

/** The verb that prints an inventory. */
export const INVENTORY_VERB = "inventory";
const DEADLINE_MS = 5000;

/** Takes the inventory; it starts some short-lived processes. What does not answer within 5 s is left out. */
export async function takeInventory(signal: AbortSignal, deadlineMs = DEADLINE_MS): Promise<Inventory> {
  const { default: information } = await import("systeminformation");
  const system = await withDeadline(() => information.system(), deadlineMs, signal);
  const known = { manufacturer: system?.manufacturer, model: system?.model, virtualHost: system?.virtualHost };
  return Inventory.parse(Object.fromEntries(Object.entries(known).flatMap(([name, value]) => nameOf(name, value))));
}

/**
 * Takes the inventory in a process of its own, so that the library behind it, which starts shells and fills memory, leaves
 * nothing in this one. Empty when that fails: it only makes a description better.
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

/** The result, or undefined when the call fails, takes too long or is no longer wanted. */
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
