import type { Dmi } from "../../host/machine/dmi.ts";
import { defaultRoute } from "../../host/network/ip/links.ts";
import type { Device } from "../../protocol/documents/claims.ts";
import type { NodeType } from "../../protocol/values/values.ts";
import { reportedLinks } from "./facts.ts";
import type { MachineReadings } from "./facts.ts";

/** Vendors by the vendor string of the firmware; the first match wins. */
const VENDORS: readonly (readonly [RegExp, string])[] = [
  [/vmware/i, "vmware"],
  [/amazon/i, "aws"],
  [/google/i, "gcp"],
  [/microsoft|hyper-v/i, "hyperv"],
  [/qemu|kvm|red hat|ovirt/i, "kvm"],
  [/innotek|virtualbox/i, "vagrant"],
  [/dell/i, "dell"],
  [/lanner/i, "lanner"],
  [/protectli/i, "protectli"],
  [/netgate/i, "netgate"],
  [/onlogic|logic supply/i, "onlogic"],
];

/** Returns the device and its links, for registration and the node's record. */
export function deviceOf(
  type: NodeType,
  dmi: Dmi,
  machine: Pick<MachineReadings, "links" | "routes" | "os">,
  virtualHost?: string,
): Device {
  const links = reportedLinks(machine);
  const outward = defaultRoute(machine.routes, 4) ?? defaultRoute(machine.routes, 6);
  const wan = links.find(({ name }) => name === outward?.link) ?? links.find(({ isPhysical }) => isPhysical);
  const lan = links.filter((link) => link.isPhysical && link !== wan).map(({ name }) => name);
  return {
    ...(type === "Agent" ? { vendor: "agent", model: machine.os.id ?? "linux" } : appliance(dmi, virtualHost)),
    mac: wan?.mac?.toUpperCase() ?? "",
    ...(wan === undefined ? {} : { wan: wan.name, lan }),
  };
}

/** Returns the vendor of an appliance from the firmware's tables. Pure. */
export function vendorOf(dmi: Dmi): string {
  return appliance(dmi, undefined).vendor;
}

/** The chassis tag of Azure's virtual machines. */
const AZURE_ASSET_TAG = "7783-7084-3265-9085-8269-3286-77";

function appliance(dmi: Dmi, virtualHost: string | undefined): { vendor: string; model: string } {
  if (dmi.assetTag === AZURE_ASSET_TAG) return { vendor: "azure", model: modelOf("azure", dmi) };
  const hints = [dmi.systemVendor, dmi.productName, virtualHost, dmi.hypervisor, dmi.boardName];
  const named = hints.flatMap(
    (hint) => VENDORS.find(([pattern]) => hint !== undefined && pattern.test(hint))?.[1] ?? [],
  );
  const vendor = named[0] ?? slug(dmi.systemVendor ?? dmi.hypervisor ?? "unknown", 64);
  return { vendor, model: modelOf(vendor, dmi) };
}

function modelOf(vendor: string, dmi: Dmi): string {
  const product = dmi.productName ?? dmi.boardName ?? vendor;
  switch (vendor) {
    case "vmware":
      return "esx";
    case "kvm":
      return "kvm";
    case "aws":
      // The firmware names the instance type, `c5n.large`; its family is the model.
      return slug(product.split(".")[0] ?? product, 128);
    default:
      return slug(product, 128);
  }
}

function slug(text: string, maxLength: number): string {
  const plain = text
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, "-")
    .replaceAll(/^-+|-+$/g, "");
  return plain === "" ? "unknown" : plain.slice(0, maxLength);
}
