import { z } from "zod";
import type { JsonObject, NodeType } from "../../values/values.ts";
import { isObject, isPresent, type RawItem } from "../common/forms.ts";
import type { ConfigIssue } from "../common/issue.ts";
import type { NetworkConfig, NetworkInterface, Vrf } from "./config.ts";
import { DEFAULT_BRIDGE_CIDR, Flag, Network, NETWORK_LIMITS } from "./fields.ts";
import { readInterfaces } from "./interfaces.ts";
import { NetworkNames } from "./names.ts";
import { NetworkReader, type Place } from "./reader.ts";
import { vrfFields } from "./routing-fields.ts";
import { readRouting } from "./routing.ts";
import { noteBridgeOverlaps, noteOverlaps, placedAddresses } from "./subnets.ts";
import { readTunnels, tunnelAddresses, type TunnelContext } from "./tunnels.ts";

export interface NetworkContext extends TunnelContext {
  readonly nodeType: NodeType;
  /** Whether the node belongs to a cluster: only then it may have what is a cluster's. */
  readonly isMember: boolean;
}

export interface ReadNetwork {
  readonly config: NetworkConfig;
  /** Items that are not applied. */
  readonly rejected: readonly ConfigIssue[];
  /** Values that are applied otherwise than written, and warnings. */
  readonly notices: readonly ConfigIssue[];
  /** The whole section is invalid: the previous state stays. */
  readonly isUnusable?: true;
}

const SECTION: Place = { path: "network", id: "" };
const Scalars = z.object({
  darkMode: Flag.optional(),
  forwarding: Flag.optional(),
  bridgeCIDR: Network.optional(),
});
const SOFT: ReadonlySet<string> = new Set(Object.keys(Scalars.shape));
const VrfHead = z.object(vrfFields);
const NOTHING: NetworkConfig = {
  isPresent: false,
  interfaces: [],
  vrfs: [],
  routing: { routes: [], nats: [], rules: [] },
  tunnels: [],
  darkMode: false,
  forwarding: false,
  bridgeCidr: DEFAULT_BRIDGE_CIDR,
};

/**
 * Brings the section `network` to one form, item by item: what cannot be used is rejected and the rest goes on. A reference that leads
 * nowhere holds its entry down and never falls back to the default VRF. Pure, and never throws.
 */
export function readNetwork(raw: unknown, context: NetworkContext): ReadNetwork {
  const reader = new NetworkReader();
  const { config, isUnusable } = networkOf(reader, raw, context);
  const { rejected, notices } = reader;
  return { config, rejected, notices, ...(isUnusable ? { isUnusable } : {}) };
}

/** Reads the section into a reader, which then has what the API refuses too. */
export function networkOf(
  reader: NetworkReader,
  raw: unknown,
  context: NetworkContext,
): { readonly config: NetworkConfig; readonly isUnusable: boolean } {
  if (!isPresent(raw)) return { config: NOTHING, isUnusable: false };
  if (context.nodeType === "Agent") {
    reader.note("E_UNSUPPORTED_ON_AGENT", SECTION, "", "ignored: the operating system owns the interfaces of agents");
    return { config: NOTHING, isUnusable: false };
  }
  if (!isObject(raw)) {
    reader.reject("E_ENUM", SECTION, "", "must be an object");
    return { config: NOTHING, isUnusable: true };
  }
  // Whether the interface that carries the session is among them cannot be known.
  if (isPresent(raw["interfaces"]) && !Array.isArray(raw["interfaces"])) {
    reader.reject("E_ENUM", SECTION, "interfaces", "must be an array");
    return { config: NOTHING, isUnusable: true };
  }
  return { config: read(reader, raw, context), isUnusable: false };
}

function read(reader: NetworkReader, raw: JsonObject, context: NetworkContext): NetworkConfig {
  const listed = (name: "interfaces" | "vrfs" | "tunnels"): RawItem[] =>
    reader.entries(SECTION, raw, name, NETWORK_LIMITS[name]).entries;
  const [nics, tunnels] = [listed("interfaces"), listed("tunnels")];
  const names = new NetworkNames(new Set(nics.map(({ fields }) => fields["nic"])));
  const heads = readVrfs(reader, listed("vrfs"), names);
  const { interfaces, held, left } = readInterfaces(reader, nics, names, context.isMember);
  const readable = readTunnels(reader, tunnels, names, context);
  const at: RawItem = { ...SECTION, index: 0, fields: raw };
  const scalars = reader.judge(at, Scalars, SOFT) ?? {};
  const bridgeCidr = scalars.bridgeCIDR ?? DEFAULT_BRIDGE_CIDR;
  const addresses = placedAddresses(interfaces, placesOf(nics, interfaces));
  noteOverlaps(reader, addresses);
  noteBridgeOverlaps(reader, [...addresses, ...tunnelAddresses(tunnels)], bridgeCidr);
  return {
    // The merge leaves them out of what a cluster gives to a member that has no section of its own.
    isPresent: !context.isMember || isPresent(raw["interfaces"]),
    interfaces: withOneDefault(reader, interfaces, nics),
    vrfs: heads.map(({ head: { name, description, forwarding = false }, at: { path, id, fields } }): Vrf => {
      const about = description === undefined ? { name, forwarding } : { name, description, forwarding };
      return Object.assign(about, readRouting(reader, { path, id }, fields, names, false));
    }),
    routing: readRouting(reader, SECTION, raw, names, true),
    tunnels: readable,
    darkMode: scalars.darkMode ?? false,
    forwarding: scalars.forwarding ?? false,
    bridgeCidr,
    ...(held.length === 0 ? {} : { held }),
    ...(left.length === 0 ? {} : { left }),
  };
}

function readVrfs(reader: NetworkReader, entries: readonly RawItem[], names: NetworkNames) {
  return entries.flatMap((at) => {
    const head = reader.judge(at, VrfHead);
    if (head === undefined) return [];
    // The interface goes before: it may be the way to the control plane.
    if (names.isNic(head.name)) {
      reader.conflict("E_NAME_DUPLICATE", at, "name", `${head.name} is the name of an interface already`);
      return [];
    }
    if (!names.claim(reader, at, "name", head.name)) return [];
    names.addVrf(head.name);
    return [{ head, at }];
  });
}

/** Finds the entry of a link in the document: of an interface, or of a VLAN of one. */
function placesOf(nics: readonly RawItem[], interfaces: readonly NetworkInterface[]): (link: string) => Place {
  const places = new Map<string, Place>();
  for (const { nic, subInterfaces } of interfaces) {
    const at = nics.find(({ fields }) => fields["nic"] === nic);
    if (at === undefined) continue;
    places.set(nic, at);
    const { subInterfaces: list } = at.fields;
    for (const { vlanId, link } of subInterfaces) {
      const index = Array.isArray(list)
        ? list.findIndex((vlan: unknown) => isObject(vlan) && Number(vlan["vlanID"]) === vlanId)
        : -1;
      places.set(link, { path: `${at.path}.subInterfaces.${index}`, id: link });
    }
  }
  return (link) => places.get(link) ?? SECTION;
}

/** Ignores the later default route of two interfaces in one VRF. */
function withOneDefault(
  reader: NetworkReader,
  interfaces: readonly NetworkInterface[],
  nics: readonly RawItem[],
): NetworkInterface[] {
  const first = new Map<string, string>();
  return interfaces.map((one) => {
    if (!one.routes.some(isDefaultRoute)) return one;
    const other = first.get(one.vrf ?? "");
    if (other === undefined) {
      first.set(one.vrf ?? "", one.nic);
      return one;
    }
    const at = nics.find(({ fields }) => fields["nic"] === one.nic) ?? SECTION;
    reader.conflict("E_DEFAULT_ROUTE_BOTH", at, "routes", `${other} has a default route already`);
    return { ...one, routes: one.routes.filter((route) => !isDefaultRoute(route)) };
  });
}

const isDefaultRoute = ({ route }: { readonly route: string }): boolean => route === "0.0.0.0/0";
