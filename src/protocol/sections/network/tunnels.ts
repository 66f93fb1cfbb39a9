import { z } from "zod";
import { isObject, isPresent, type RawItem } from "../common/forms.ts";
import type { NetworkTunnel } from "./config.ts";
import type { NetworkNames } from "./names.ts";
import type { NetworkReader, Place } from "./reader.ts";
import { tunnelFields, tunnelNeeds } from "./tunnel-fields.ts";

/** Values that tunnels need from other sections; absent if unknown. */
export interface TunnelContext {
  /** The virtual networks that `vpn` attaches, by number. */
  readonly attached?: ReadonlySet<number>;
  /** Whether `apigw` has a WireGuard endpoint. */
  readonly hasWireguard?: boolean;
}

const Tunnel = z.object(tunnelFields);
type Tunnel = z.output<typeof Tunnel>;

/** Reads the tunnels that can be used. One that lacks something elsewhere is down. */
export function readTunnels(
  reader: NetworkReader,
  entries: readonly RawItem[],
  names: NetworkNames,
  context: TunnelContext,
): NetworkTunnel[] {
  return entries.flatMap((entry): NetworkTunnel[] => {
    const at = withoutNoNetwork(entry);
    const tunnel = reader.judge(at, Tunnel);
    if (tunnel === undefined || !hasNeeds(reader, at, tunnel)) return [];
    if (!names.claim(reader, at, "name", tunnel.name)) return [];
    const { type, name, enabled } = tunnel;
    if (!enabled) return [{ type, name, enabled }];
    const isUp = isServed(reader, at, tunnel, names, context);
    if (isUp)
      reader.note("E_UNSUPPORTED", at, "type", `tunnels of type ${type} are not supported: it is stored and not made`);
    return [{ type, name, enabled: isUp }];
  });
}

/** Removes the network number 0, which means none, from tunnels that need no virtual network. */
function withoutNoNetwork(entry: RawItem): RawItem {
  const { networkId, type } = entry.fields;
  if (type === "vnet" || (networkId !== 0 && networkId !== "0")) return entry;
  return { ...entry, fields: { ...entry.fields, networkId: undefined } };
}

function hasNeeds(reader: NetworkReader, at: RawItem, tunnel: Tunnel): boolean {
  const missing = tunnelNeeds[tunnel.type].filter((field) => tunnel[field] === undefined || tunnel[field] === "");
  for (const field of missing) reader.conflict("E_REQUIRED", at, field, `is required with type ${tunnel.type}`);
  if (tunnel.type === "vnet" && tunnel.networkId === 0) {
    reader.conflict("E_RANGE", at, "networkId", "0 is no virtual network");
    return false;
  }
  const isOpen = tunnel.type === "ipsec" && (tunnel.psk === undefined || tunnel.psk === "");
  // Not a conflict: the API checks it after it has inserted the stored secret.
  if (isOpen) reader.reject("E_REQUIRED", at, "psk", "is required with type ipsec");
  return missing.length === 0 && !isOpen;
}

function isServed(
  reader: NetworkReader,
  at: RawItem,
  tunnel: Tunnel,
  names: NetworkNames,
  { attached, hasWireguard }: TunnelContext,
): boolean {
  if (!names.hasVrf(tunnel.vrf)) {
    reader.unknown(at, "vrf", `there is no VRF ${tunnel.vrf}; the tunnel is held down`, "network.vrfs");
    return false;
  }
  const { type, networkId } = tunnel;
  if (type === "vnet" && attached?.has(networkId ?? 0) === false) {
    reader.note(
      "E_DEPENDENCY",
      at,
      "networkId",
      `vpn does not attach the virtual network ${networkId}; the tunnel is down`,
    );
    return false;
  }
  if (type === "wireguard" && hasWireguard === false) {
    reader.note("E_DEPENDENCY", at, "type", "apigw has no WireGuard endpoint; the tunnel is down");
    return false;
  }
  return true;
}

/** Says which tunnels of a section, secrets and all, lack the one they cannot do without; each line is led by its path. */
export function missingTunnelSecrets(section: Readonly<Record<string, unknown>>): string[] {
  const tunnels: readonly unknown[] = Array.isArray(section["tunnels"]) ? section["tunnels"] : [];
  return tunnels.flatMap((tunnel, index) => {
    if (!isObject(tunnel) || tunnel["type"] !== "ipsec") return [];
    const isThere = isPresent(tunnel["psk"]) && tunnel["psk"] !== "";
    return isThere ? [] : [`network.tunnels.${index}.psk: is required with type ipsec`];
  });
}

/** The addresses of tunnels that are on. */
export function tunnelAddresses(
  entries: readonly RawItem[],
): { readonly at: Place; readonly field: string; readonly address: string }[] {
  return entries.flatMap((at) => {
    const parsed = Tunnel.shape.ip.safeParse(at.fields["ip"]);
    const { enabled } = at.fields;
    return enabled === true && parsed.data !== undefined ? [{ at, field: "ip", address: parsed.data }] : [];
  });
}
