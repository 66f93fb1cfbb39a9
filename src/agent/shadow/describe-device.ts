import type { Clock } from "../../host/clock.ts";
import { readDmi } from "../../host/machine/dmi.ts";
import type { Exec } from "../../host/process/exec.ts";
import { readInventory } from "../../host/machine/inventory.ts";
import type { Reader } from "../../host/reader.ts";
import type { Device } from "../../protocol/documents/claims.ts";
import type { NodeType } from "../../protocol/values/values.ts";
import { deviceOf } from "./device.ts";
import { readMachine } from "./readings.ts";

/** Describes this machine for registration. Runs other programs only if the firmware's tables lack the vendor. */
export async function describeDevice(
  type: NodeType,
  { reader, clock, exec }: { readonly reader: Reader; readonly clock: Clock; readonly exec: Exec },
  signal: AbortSignal,
): Promise<Device> {
  const dmi = readDmi(reader);
  const isSilent = type === "Node" && dmi.systemVendor === undefined;
  const { virtualHost } = isSilent ? await readInventory(exec, signal) : {};
  return deviceOf(type, dmi, readMachine(reader, clock), virtualHost);
}
