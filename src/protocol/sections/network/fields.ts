import { z } from "zod";
import { addressRange } from "../../../lib/net/cidr.ts";
import { Requires } from "../../values/features.ts";
import { linkPattern } from "../../values/values.ts";
import { Description, says, whole } from "../common/fields.ts";

/** Most entries of each list in the section. */
export const NETWORK_LIMITS = {
  interfaces: 256,
  subInterfaces: 4094,
  vrfs: 256,
  tunnels: 512,
  routes: 10_000,
  nats: 10_000,
  acls: 32_768,
  rules: 32_768,
  addIps: 256,
  dns: 16,
  cloudRoutes: 1024,
  clusterRouteTables: 64,
} as const;

export const MTU = { min: 1300, max: 9001 } as const;
export const METRIC = { min: 1, max: 200 } as const;
export const LINE = { min: 1, max: 32_768 } as const;
/** Name of the default routing context in fields that name a VRF. */
export const DEFAULT_VRF = "default";
/** Default network of the containers' bridge. */
export const DEFAULT_BRIDGE_CIDR = "172.18.0.0/16";

const OCTET = "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)";
// No address of a machine begins with 0 or 127, nor with 224 and above (RFC 6890).
const FIRST = "(?:22[0-3]|2[01]\\d|1[3-9]\\d|12[0-689]|1[01]\\d|[1-9]\\d|[1-9])";
const REST = `(?:\\.${OCTET}){3}`;
const LENGTH = "(?:3[0-2]|[12]?\\d)";

/** Pattern of an IPv4 network, without anchors. */
export const NETWORK_PATTERN = `${OCTET}${REST}/${LENGTH}`;

/** Pattern of a host address, without anchors. */
export const ADDRESS_PATTERN = `${FIRST}${REST}`;

const text = () => z.string(says("must be text"));

/** Reports whether an address is neither the network's nor its broadcast address. */
function isHost(address: string): boolean {
  const [host = "", length = "32"] = address.split("/");
  if (Number(length) > 30) return true;
  const [network, one] = [addressRange(address), addressRange(host)];
  if (network === undefined || one === undefined) return false;
  return Buffer.compare(one.low, network.low) !== 0 && Buffer.compare(one.low, network.high) !== 0;
}

export const Flag = z.boolean(says("must be true or false"));
export const Uid = text().max(128, says("must have at most 128 characters"));
/** An IPv4 network; host bits are not checked. */
export const Network = text().regex(
  new RegExp(`^${NETWORK_PATTERN}$`),
  says("must be an IPv4 network such as 192.0.2.0/24"),
);
/** The address of a machine. */
export const Address = text().regex(new RegExp(`^${ADDRESS_PATTERN}$`), says("must be the IPv4 address of a machine"));
/** The address of a machine with the length of its network; of `/31` and `/32` every address is a machine's (RFC 3021). */
export const InterfaceAddress = text()
  .regex(new RegExp(`^${ADDRESS_PATTERN}/${LENGTH}$`), {
    ...says("must be the IPv4 address of a machine with its prefix length, such as 192.0.2.1/24"),
    abort: true,
  })
  .refine((address) => !address.endsWith("/0"), {
    ...says("must have a prefix length of 1 to 32: a network of length 0 is the whole internet"),
    abort: true,
  })
  .refine(isHost, says("must be the address of a machine, not the first (network) or last (broadcast) of its network"));
/** The name of a link as Linux allows it; one of a VLAN may be longer and is shortened. */
export const LinkRef = text().regex(
  new RegExp(`^(?:${linkPattern("A-Za-z_@:", 20)})$`),
  says("must be the name of a network interface"),
);
export const Nic = text().regex(
  new RegExp(`^(?:${linkPattern("A-Za-z_@:", 15)})$`),
  says("must be the name of a network interface, of at most 15 characters"),
);
/** The name of a VRF or a tunnel, which becomes the name of a link. */
export const DeviceName = text().regex(
  new RegExp(`^(?:${linkPattern("A-Za-z_", 15)})$`),
  says("must be 1..15 letters, digits, dots, dashes and underscores"),
);

export const list = <T extends z.ZodType>(item: T, most: number) =>
  z
    .array(item, says("must be an array"))
    .max(most, says(`must be at most ${most}`))
    .optional();

const item = says("must be an object");
const routeFields = {
  route: Network,
  next: Address.optional().meta({ description: "The gateway of the interface by default" }),
  description: Description,
  requires: Requires,
};
/** A static route of an interface. */
export const InterfaceRouteItem = z.looseObject(routeFields, item);
/** A static route of a VLAN, which has no gateway to fall back on. */
export const VlanRouteItem = z.looseObject({ ...routeFields, next: Address }, item);
/** A prefix that is published in the route tables of a cloud. */
export const CloudRouteItem = z.looseObject({ route: Network, description: Description }, item);

/** The fields of a VLAN that are not lists of items. */
export const vlanFields = {
  vlanID: whole(1, 4094),
  ip: InterfaceAddress,
  addIps: list(InterfaceAddress, NETWORK_LIMITS.addIps),
  vrf: DeviceName.optional(),
  description: Description,
  requires: Requires,
};
export const SubInterfaceItem = z.looseObject(
  { ...vlanFields, routes: list(VlanRouteItem, NETWORK_LIMITS.routes) },
  item,
);

/** The fields of an interface that are always a node's own. */
export const ownFields = {
  description: Description,
  dhcp: Flag.optional(),
  ip: InterfaceAddress.optional(),
  subnet: text().max(32).optional().meta({ description: "Older form of the prefix length of `ip`" }),
  gateway: Address.optional(),
  dns: list(Address, NETWORK_LIMITS.dns),
  mtu: whole(MTU.min, MTU.max).optional().meta({ description: "Bytes" }),
  mode: z.enum(["auto", "manual"], says("must be one of auto, manual")).optional(),
  speed: z
    .literal([10, 100, 1000, 2500, 5000, 10_000], says("must be one of 10, 100, 1000, 2500, 5000, 10000"))
    .optional()
    .meta({ description: "Mbit/s, with mode manual" }),
  duplex: z.enum(["full", "half", "auto"], says("must be one of full, half, auto")).optional(),
  vrf: DeviceName.optional().meta({ description: "`default` is none" }),
  virtual: Flag.optional().meta({ description: "A bridge or a bond that exists" }),
  dhcpPool: text().max(1024).optional().meta({ description: "Kept and not used" }),
  addIps: list(InterfaceAddress, NETWORK_LIMITS.addIps),
  ignoreHealthCheck: Flag.optional(),
} as const;

/** The fields of an interface that only a cluster has. */
export const clusterFields = {
  clusterIP: Address.optional().meta({ description: "Without a prefix length; the active member holds it" }),
  cloudRoutes: list(CloudRouteItem, NETWORK_LIMITS.cloudRoutes),
  clusterRoutes: list(CloudRouteItem, NETWORK_LIMITS.cloudRoutes).meta({
    description: "Another name of `cloudRoutes`",
  }),
  clusterRouteTables: list(text().min(1).max(256), NETWORK_LIMITS.clusterRouteTables),
} as const;

/** The fields of an interface that both may have. */
export const sharedFields = {
  nic: Nic,
  routes: list(InterfaceRouteItem, NETWORK_LIMITS.routes),
  subInterfaces: list(SubInterfaceItem, NETWORK_LIMITS.subInterfaces),
  requires: Requires,
} as const;
