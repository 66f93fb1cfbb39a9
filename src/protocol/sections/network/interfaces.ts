import { z } from "zod";
import { addressRange } from "../../../lib/net/cidr.ts";
import { isPresent, type RawItem } from "../common/forms.ts";
import type { InterfaceRoute, NetworkInterface, SubInterface } from "./config.ts";
import {
  clusterFields,
  CloudRouteItem,
  DEFAULT_VRF,
  InterfaceAddress,
  InterfaceRouteItem,
  list,
  NETWORK_LIMITS,
  ownFields,
  sharedFields,
  VlanRouteItem,
  vlanFields,
} from "./fields.ts";
import type { NetworkNames } from "./names.ts";
import type { NetworkReader } from "./reader.ts";
import { defined } from "../../../lib/defined.ts";

/** Valid interfaces, and those with invalid entries. */
export interface Interfaces {
  readonly interfaces: readonly NetworkInterface[];
  readonly held: readonly string[];
  readonly left: readonly string[];
}

const { nic, requires } = sharedFields;
const Identity = z.object({ nic });
const Own = z.object({ nic, requires, ...ownFields });
const Inherited = z.object({
  clusterIP: clusterFields.clusterIP,
  clusterRouteTables: clusterFields.clusterRouteTables,
});
const Vlan = z.object({ ...vlanFields, ip: InterfaceAddress.optional(), clusterIPs: list(InterfaceAddress, 64) });

/** Fields without which an interface still has its addresses. */
const SOFT: ReadonlySet<string> = new Set([
  "description",
  "subnet",
  "dhcpPool",
  "gateway",
  "dns",
  "mtu",
  "mode",
  "speed",
  "duplex",
  "virtual",
  "addIps",
  "ignoreHealthCheck",
  "uid",
]);

const SOFT_WITH_DHCP: ReadonlySet<string> = new Set([...SOFT, "ip"]);

/** Reads the interfaces item by item. */
export function readInterfaces(
  reader: NetworkReader,
  entries: readonly RawItem[],
  names: NetworkNames,
  isMember: boolean,
): Interfaces {
  const interfaces: NetworkInterface[] = [];
  const held: string[] = [];
  const left: string[] = [];
  for (const at of entries) {
    const named = reader.judge({ ...at, fields: { nic: at.fields["nic"] } }, Identity);
    if (named === undefined || !names.claim(reader, at, "nic", named.nic)) continue;
    const { vrf, dhcp } = at.fields;
    const isVrf = vrf === "" || !isPresent(vrf) || (typeof vrf === "string" && names.hasVrf(vrf));
    if (!isVrf) {
      const called = typeof vrf === "string" ? vrf.slice(0, 64) : "of this form";
      reader.unknown(at, "vrf", `there is no VRF ${called}; the interface is held down`, "network.vrfs");
      held.push(named.nic);
      continue;
    }
    const own = reader.judge(withPrefix(at), Own, dhcp === true ? SOFT_WITH_DHCP : SOFT);
    if (own === undefined) left.push(named.nic);
    else interfaces.push(interfaceOf(reader, at, own, names, isMember));
  }
  return { interfaces, held, left };
}

function interfaceOf(
  reader: NetworkReader,
  at: RawItem,
  own: z.output<typeof Own>,
  names: NetworkNames,
  isMember: boolean,
): NetworkInterface {
  const dhcp = own.dhcp ?? false;
  const { description, gateway, mtu } = own;
  const ip = dhcp ? undefined : own.ip;
  if (dhcp && own.ip !== undefined) {
    reader.tolerate("E_DEPENDENCY", at, "ip", "has no place beside dhcp, which gives the address", "ignored");
  }
  if (!dhcp && ip === undefined && !isPresent(at.fields["subInterfaces"]) && !isPresent(at.fields["clusterIP"])) {
    reader.note("E_REQUIRED", at, "ip", "is required without dhcp: the interface has no address");
  }
  if (ip !== undefined && gateway !== undefined && ![ip, ...(own.addIps ?? [])].some((one) => holds(one, gateway))) {
    reader.note("E_RANGE", at, "gateway", `${gateway} is in no network of this interface`);
  }
  const routes = uniqueRoutes(
    reader,
    reader.entries(at, at.fields, "routes", NETWORK_LIMITS.routes).entries.flatMap((entry) => {
      const item = reader.judge(entry, InterfaceRouteItem);
      return item === undefined ? [] : [{ item, at: entry }];
    }),
  );
  if (own.ignoreHealthCheck === true) {
    reader.note(
      "E_UNSUPPORTED",
      at,
      "ignoreHealthCheck",
      "stored and not applied: no health of a cluster is judged yet",
    );
  }
  if (own.virtual === true) {
    reader.note(
      "E_UNSUPPORTED",
      at,
      "virtual",
      "stored and not applied: the node uses a link that exists and makes none",
    );
  }
  return {
    nic: own.nic,
    ...defined({ description }),
    dhcp,
    ...defined({ ip, gateway }),
    dns: [...new Set(own.dns)],
    ...defined({ mtu }),
    ...fixedOf(reader, at, own),
    ...vrfOf(own.vrf),
    isVirtual: own.virtual ?? false,
    addIps: addresses(own.addIps, ip),
    ignoreHealthCheck: own.ignoreHealthCheck ?? false,
    routes,
    subInterfaces: readVlans(reader, at, own.nic, names, isMember),
    ...(isMember ? fromCluster(reader, at, ip, own.addIps ?? []) : ignoreCluster(reader, at)),
  };
}

/** A prefix length that only the older `subnet` has, as a mask or as a network. */
function withPrefix(at: RawItem): RawItem {
  const { ip, subnet } = at.fields;
  if (typeof ip !== "string" || ip === "" || ip.includes("/") || typeof subnet !== "string") return at;
  const length = subnet.includes("/") ? subnet.split("/")[1] : maskLength(subnet);
  return length === undefined ? at : { ...at, fields: { ...at.fields, ip: `${ip}/${length}` } };
}

function maskLength(mask: string): number | undefined {
  const bits = mask
    .split(".")
    .map((part) => (/^\d{1,3}$/.test(part) ? Number(part).toString(2).padStart(8, "0") : "?"))
    .join("");
  return /^1*0*$/.test(bits) && bits.length === 32 ? bits.lastIndexOf("1") + 1 : undefined;
}

function fixedOf(reader: NetworkReader, at: RawItem, own: z.output<typeof Own>): Pick<NetworkInterface, "fixed"> {
  if (own.mode !== "manual") return {};
  const { speed, duplex } = own;
  if (speed !== undefined && (duplex === "full" || duplex === "half")) return { fixed: { speedMbps: speed, duplex } };
  const missing = speed === undefined ? "speed" : "duplex";
  reader.tolerate("E_REQUIRED", at, missing, "is required with mode manual", "speed and duplex are negotiated");
  return {};
}

const vrfOf = (vrf: string | undefined): { readonly vrf?: string } =>
  vrf === undefined || vrf === DEFAULT_VRF ? {} : { vrf };

const addresses = (more: readonly string[] = [], first?: string): string[] =>
  [...new Set(more)].filter((address) => address !== first);

type ReadRoute = z.output<typeof InterfaceRouteItem>;

/** Rejects the later of two with one destination. */
function uniqueRoutes<T extends ReadRoute>(
  reader: NetworkReader,
  found: readonly { readonly item: T; readonly at: RawItem }[],
): (InterfaceRoute & Pick<T, "next">)[] {
  const first = new Map<string, string>();
  return found.flatMap(({ item, at }) => {
    const { route, next, description } = item;
    const other = first.get(route);
    if (other !== undefined) {
      reader.conflict("E_NAME_DUPLICATE", at, "route", `${route} is in ${other} already`);
      return [];
    }
    first.set(route, at.path);
    return [{ route, ...defined({ next, description }) }];
  });
}

function readVlans(
  reader: NetworkReader,
  parent: RawItem,
  nicName: string,
  names: NetworkNames,
  isMember: boolean,
): SubInterface[] {
  const { entries } = reader.entries(parent, parent.fields, "subInterfaces", NETWORK_LIMITS.subInterfaces);
  const first = new Map<number, string>();
  return entries.flatMap((entry): SubInterface[] => {
    const at = { ...entry, id: `${nicName}.${String(entry.fields["vlanID"]).slice(0, 16)}` };
    const { clusterIPs: _notOurs, ...fields } = entry.fields;
    const item = reader.judge(isMember ? at : { ...at, fields }, Vlan, VLAN_SOFT);
    if (item === undefined) return [];
    const [ip, ...more] = [item.ip, ...(item.addIps ?? []), ...(item.clusterIPs ?? [])].filter(isText);
    if (ip === undefined || (item.ip === undefined && item.clusterIPs === undefined)) {
      reader.reject("E_REQUIRED", at, "ip", "is required");
      return [];
    }
    const other = first.get(item.vlanID);
    if (other !== undefined) {
      reader.conflict("E_NAME_DUPLICATE", at, "vlanID", `${item.vlanID} is in ${other} already`);
      return [];
    }
    first.set(item.vlanID, at.path);
    const link = names.vlan(nicName, item.vlanID);
    // The interface goes before: it may be the way to the control plane.
    if (names.isNic(link)) {
      reader.conflict("E_NAME_DUPLICATE", at, "vlanID", `${link} is the name of an interface already`);
      return [];
    }
    if (!names.claim(reader, at, "vlanID", link)) return [];
    if (!names.hasVrf(item.vrf)) {
      reader.unknown(at, "vrf", `there is no VRF ${item.vrf}; the VLAN is held down`, "network.vrfs");
      return [];
    }
    const routes = reader.entries(at, at.fields, "routes", NETWORK_LIMITS.routes).entries.flatMap((place) => {
      const route = reader.judge(place, VlanRouteItem);
      return route === undefined ? [] : [{ item: route, at: place }];
    });
    const { vlanID, clusterIPs, description } = item;
    return [
      {
        vlanId: vlanID,
        link,
        ip,
        addIps: addresses(more, ip),
        ...defined({ roleBound: clusterIPs }),
        ...vrfOf(item.vrf),
        routes: uniqueRoutes(reader, routes),
        ...defined({ description }),
      },
    ];
  });
}

const VLAN_SOFT: ReadonlySet<string> = new Set(["description", "addIps", "clusterIPs"]);
const isText = (text: string | undefined): text is string => text !== undefined;

/** Values that a member gets from its cluster. */
function fromCluster(
  reader: NetworkReader,
  at: RawItem,
  ip: string | undefined,
  more: readonly string[],
): Pick<NetworkInterface, "clusterIp" | "cloudRoutes" | "clusterRouteTables"> {
  const names = Object.keys(Inherited.shape);
  const fields = Object.fromEntries(names.map((name) => [name, at.fields[name]]));
  const { clusterIP, clusterRouteTables = [] } = reader.judge({ ...at, fields }, Inherited, new Set(names)) ?? {};
  for (const name of ["cloudRoutes", "clusterRoutes", "clusterRouteTables"]) {
    const value = at.fields[name];
    if (!Array.isArray(value) || value.length === 0) continue;
    reader.note("E_UNSUPPORTED", at, name, "stored and not applied: this version changes no route tables of clouds");
  }
  const subnets = [ip, ...more].filter((text) => text !== undefined);
  if (clusterIP !== undefined && subnets.length > 0 && !subnets.some((subnet) => holds(subnet, clusterIP))) {
    reader.note("E_RANGE", at, "clusterIP", `${clusterIP} is in no network of this interface`);
  }
  const cloudRoutes = (["cloudRoutes", "clusterRoutes"] as const).flatMap((name) =>
    reader.entries(at, at.fields, name, NETWORK_LIMITS.cloudRoutes).entries.flatMap((entry) => {
      const item = reader.judge(entry, CloudRouteItem);
      return item === undefined ? [] : [item];
    }),
  );
  const routes = new Map(cloudRoutes.map(({ route, description }) => [route, description]));
  return {
    ...defined({ clusterIp: clusterIP }),
    ...(routes.size === 0
      ? {}
      : { cloudRoutes: [...routes].map(([route, description]) => cloudRoute(route, description)) }),
    ...(clusterRouteTables.length === 0 ? {} : { clusterRouteTables }),
  };
}

const cloudRoute = (route: string, description: string | undefined): InterfaceRoute => ({
  route,
  ...defined({ description }),
});

function ignoreCluster(reader: NetworkReader, at: RawItem): Record<string, never> {
  for (const name of Object.keys(clusterFields)) {
    const value = at.fields[name];
    if (!isPresent(value) || value === "" || (Array.isArray(value) && value.length === 0)) continue;
    reader.tolerate("E_CLUSTER_FIELD", at, name, "is only for the configuration of a cluster", "ignored");
  }
  return {};
}

/** Reports whether an address is in the network of another. */
function holds(network: string, address: string): boolean {
  const [block, one] = [addressRange(network), addressRange(address)];
  if (block === undefined || one === undefined) return false;
  return Buffer.compare(block.low, one.low) <= 0 && Buffer.compare(one.high, block.high) <= 0;
}
