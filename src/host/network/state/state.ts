import type { LeaseOffer } from "./lease-offer.ts";

/** The routing protocol number of all that is ours: rtm_protocol and fra_protocol of rtnetlink(7). */
export const OUR_PROTOCOL = 218;

/** A link by `ip -json -details link`. */
export interface LinkState {
  readonly name: string;
  readonly index: number;
  /** IFLA_INFO_KIND: `vlan`, `vrf`, `bridge`, `veth`, …; absent for a device. */
  readonly kind?: string;
  /** The link below a VLAN, and its tag. */
  readonly parent?: string;
  readonly vlanId?: number;
  /** The bridge, bond or VRF it belongs to. */
  readonly master?: string;
  /** The table of a VRF. */
  readonly table?: number;
  readonly mtu: number;
  /** The largest MTU that the driver takes, as far as it says. */
  readonly maxMtu?: number;
  readonly mac?: string;
  /** Switched on (IFF_UP); a carrier is another matter. */
  readonly isUp: boolean;
  readonly hasCarrier: boolean;
  /** RFC 2863, in lower case. */
  readonly operState: string;
  /** We made it: its name begins with `hf-`, it has an altname `holdfast:…`, or it is of the link group 218. */
  readonly isOurs: boolean;
  readonly altnames: readonly string[];
  /** Speed and duplex that we fixed, as far as the driver does not say otherwise; absent: negotiated, or not for us to say. */
  readonly fixed?: { readonly speedMbps: number; readonly duplex: "full" | "half" };
}

/** An IPv4 address of a link. */
export interface AddressState {
  readonly link: string;
  /** With its prefix length: `192.0.2.1/24`. */
  readonly address: string;
  readonly isOurs: boolean;
  /** Given by a DHCP client: it has a lifetime. */
  readonly isDynamic: boolean;
  /** The kernel made no route to its subnet (IFA_F_NOPREFIXROUTE). */
  readonly hasNoRoute?: boolean;
}

/** rtm_scope of rtnetlink(7): `site` is what we give our default routes, and hardly anybody else does. */
export type RouteScope = "global" | "site" | "link" | "host";

export type RouteKind = "unicast" | "unreachable" | "blackhole" | "prohibit";

/** An IPv4 route, keyed as the kernel does by table, destination and metric; those with protocol 218 are ours. */
export interface RouteState {
  /** 254 is main. */
  readonly table: number;
  readonly kind: RouteKind;
  /** `0.0.0.0/0` is the default route. */
  readonly destination: string;
  readonly via?: string;
  readonly link?: string;
  readonly metric: number;
  readonly protocol: number;
  readonly scope: RouteScope;
  /** The gateway counts as reachable although no address says so. */
  readonly isOnLink: boolean;
  /** RTA_PREFSRC. */
  readonly source?: string;
}

/** An IPv4 policy rule; those with protocol 218 are ours. */
export interface RuleState {
  readonly priority: number;
  readonly protocol: number;
  readonly from?: string;
  readonly to?: string;
  readonly inLink?: string;
  readonly outLink?: string;
  readonly mark?: number;
  readonly mask?: number;
  readonly table: number;
  /** Routes of the table with a prefix this long or shorter do not count (`suppress_prefixlength` of ip-rule(8)). */
  readonly suppressLength?: number;
}

export interface NeighbourState {
  readonly link: string;
  readonly address: string;
  readonly mac?: string;
  /** NUD states of ip-neighbour(8), in lower case. */
  readonly states: readonly string[];
}

/**
 * The table `inet holdfast`. `digest` is of the text that was loaded, kept as the table's comment; empty when somebody changed the
 * table since. `text` is what the kernel lists, without counters and handles, as a digest.
 */
export interface FirewallState {
  readonly digest: string;
  readonly text: string;
}

/** Everything about this network namespace that the section looks at. Foreign things are in it too, to be left alone. */
export interface NetworkState {
  readonly links: readonly LinkState[];
  readonly addresses: readonly AddressState[];
  /** Of every table but `local`. */
  readonly routes: readonly RouteState[];
  readonly rules: readonly RuleState[];
  readonly firewall?: FirewallState;
  /** By dotted name, as sysctl(8) writes it. Only those that a target names. */
  readonly sysctls: ReadonlyMap<string, string>;
  /** Links on which our DHCP client runs. */
  readonly dhcp: ReadonlySet<string>;
  /** Those of them whose client ignores the default route of its lease. */
  readonly dhcpWithoutGateway?: readonly string[];
  /** Gateway and name servers of our clients' leases, by link. */
  readonly leases?: Readonly<Record<string, LeaseOffer>>;
  /** The name servers that this machine asks, from when we set them until they are handed back. */
  readonly nameServers?: readonly string[];
}

/**
 * What of it is wanted. Only things of ours are listed: what is ours and not here is taken away, what is not ours stays. A thing that a
 * stranger has made just as it is wanted counts as there.
 */
export interface NetworkTarget {
  readonly links: readonly LinkTarget[];
  readonly addresses: readonly AddressTarget[];
  readonly routes: readonly Omit<RouteState, "protocol">[];
  readonly rules: readonly Omit<RuleState, "protocol">[];
  /** The whole text of the table for `nft -f`, without its comment; absent: no table. */
  readonly firewall?: string;
  /** Whatever table is there stays as it is. */
  readonly keepsFirewall?: boolean;
  readonly sysctls: ReadonlyMap<string, string>;
  readonly dhcp: ReadonlySet<string>;
  /** Links whose client ignores the default route of its lease. */
  readonly dhcpWithoutGateway?: readonly string[];
  readonly nameServers?: readonly string[];
  /** It was observed: what is not in it goes also where a lease has yet to come. */
  readonly isExact?: boolean;
}

/** An address as it shall be. */
export interface AddressTarget {
  readonly link: string;
  readonly address: string;
  /** Without the route to its subnet that the kernel makes in the table main. */
  readonly hasNoRoute?: boolean;
}

/** A link as it shall be. One with a `kind` is made and taken away by us; any other exists, and is only adjusted. */
export interface LinkTarget {
  readonly name: string;
  readonly kind?: "vlan" | "vrf";
  readonly parent?: string;
  readonly vlanId?: number;
  readonly table?: number;
  readonly master?: string;
  readonly mtu?: number;
  readonly isUp: boolean;
  /** ethtool(8): fixed speed and duplex; absent: negotiated. */
  readonly fixed?: { readonly speedMbps: number; readonly duplex: "full" | "half" };
}
