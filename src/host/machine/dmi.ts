import { colonFields } from "../../lib/text/text-fields.ts";
import type { Reader } from "../reader.ts";

/** What the firmware says the machine is (SMBIOS), and whether it is a virtual one. */
export interface Dmi {
  readonly systemVendor: string | undefined;
  readonly productName: string | undefined;
  readonly boardName: string | undefined;
  /** Set by some clouds to tell their machines from others of the same maker. */
  readonly assetTag: string | undefined;
  /** `xen` by /sys/hypervisor/type, `unknown` where the processor only says that there is one, else undefined. */
  readonly hypervisor: string | undefined;
}

const FILLERS = /^(?:to be filled by o\.e\.m\.|default string|not specified|system product name|none|n\/a|-)?$/i;

export function readDmi(reader: Reader): Dmi {
  const field = (name: string): string | undefined => {
    const text = reader.read(`/sys/class/dmi/id/${name}`)?.trim();
    return text === undefined || FILLERS.test(text) ? undefined : text.slice(0, 128);
  };
  return {
    systemVendor: field("sys_vendor"),
    productName: field("product_name"),
    boardName: field("board_name"),
    assetTag: field("chassis_asset_tag"),
    hypervisor: hypervisorOf(reader),
  };
}

/** A trusted platform module is there. */
export function hasTpm(reader: Reader): boolean {
  return reader.fingerprint("/sys/class/tpm/tpm0") !== undefined;
}

function hypervisorOf(reader: Reader): string | undefined {
  const type = reader.read("/sys/hypervisor/type")?.trim();
  if (type !== undefined && type !== "") return type;
  const flags = colonFields(reader.read("/proc/cpuinfo") ?? "").get("flags") ?? "";
  return flags.split(" ").includes("hypervisor") ? "unknown" : undefined;
}
