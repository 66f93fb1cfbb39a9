import { colonFields } from "../../lib/text/text-fields.ts";
import type { Reader } from "../reader.ts";

/** The machine's identity by its firmware (SMBIOS), and its hypervisor. */
export interface Dmi {
  readonly systemVendor: string | undefined;
  readonly productName: string | undefined;
  readonly boardName: string | undefined;
  /** Set by some clouds to distinguish their machines from others of the same manufacturer. */
  readonly assetTag: string | undefined;
  /** `xen` by /sys/hypervisor/type, `unknown` if the processor only reports that there is one, otherwise undefined. */
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

/** Reports whether the machine has a trusted platform module. */
export function hasTpm(reader: Reader): boolean {
  return reader.fingerprint("/sys/class/tpm/tpm0") !== undefined;
}

function hypervisorOf(reader: Reader): string | undefined {
  const type = reader.read("/sys/hypervisor/type")?.trim();
  if (type !== undefined && type !== "") return type;
  const flags = colonFields(reader.read("/proc/cpuinfo") ?? "").get("flags") ?? "";
  return flags.split(" ").includes("hypervisor") ? "unknown" : undefined;
}
