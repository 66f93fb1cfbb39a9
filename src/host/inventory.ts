import { setTimeout as delay } from "node:timers/promises";

/** What is asked of the machine once per boot, because /proc and /sys do not say it plainly. */
export interface Inventory {
  readonly processor: string | undefined;
  readonly physicalCores: number | undefined;
  readonly isVirtual: boolean | undefined;
  /** The hypervisor by its own name, such as `KVM`. */
  readonly virtualHost: string | undefined;
  readonly disks: readonly InventoryDisk[];
}

export interface InventoryDisk {
  readonly device: string;
  readonly type: string;
  readonly name: string;
  readonly sizeBytes: number;
}

const DEADLINE_MS = 5000;
const MAX_DISKS = 64;

/**
 * Takes the inventory; it starts about twenty short-lived processes, so the caller keeps the result for as long as the boot
 * id stays. What does not answer within 5 s is left out.
 */
export async function takeInventory(signal: AbortSignal, deadlineMs = DEADLINE_MS): Promise<Inventory> {
  const { default: information } = await import("systeminformation");
  const ask = <T>(call: () => Promise<T>): Promise<T | undefined> => withDeadline(call, deadlineMs, signal);
  const processor = await ask(() => information.cpu());
  const system = await ask(() => information.system());
  const disks = await ask(() => information.diskLayout());
  return {
    processor: textOf(`${processor?.manufacturer ?? ""} ${processor?.brand ?? ""}`),
    physicalCores: countOf(processor?.physicalCores),
    isVirtual: typeof system?.virtual === "boolean" ? system.virtual : undefined,
    virtualHost: textOf(system?.virtualHost),
    disks: (disks ?? []).slice(0, MAX_DISKS).map((disk) => ({
      device: textOf(disk.device) ?? "",
      type: textOf(disk.type) ?? "",
      name: textOf(disk.name) ?? "",
      sizeBytes: countOf(disk.size) ?? 0,
    })),
  };
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

function textOf(value: unknown): string | undefined {
  const text = typeof value === "string" ? value.trim().slice(0, 128) : "";
  return text === "" ? undefined : text;
}

function countOf(value: unknown): number | undefined {
  return typeof value === "number" && Number.isFinite(value) && value >= 0 ? value : undefined;
}
