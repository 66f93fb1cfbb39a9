import type { LeaseOffer } from "./lease-offer.ts";

/** The routing protocol number of all our objects: rtm_protocol and fra_protocol of rtnetlink(7). */
export const OUR_PROTOCOL = 218;

/** A link by `ip -json -details link`. */
export interface LinkState {
  readonly name: string;
  readonly index: number;
  /** IFLA_INFO_KIND: `vlan`, `vrf`, `bridge`, `veth`, …; absent for a device. */
  readonly kind?: string;
  /** The parent link of a VLAN, and its tag. */
  readonly parent?: string;
  readonly vlanId?: number;
  /** The bridge, bond or VRF it belongs to. */
  readonly master?: string;
  /** The table of a VRF. */
  readonly table?: number;
  readonly mtu: number;
  /** The largest MTU of the driver, if reported. */
  readonly maxMtu?: number;
  readonly mac?: string;
  /** Whether it is switched on (IFF_UP), regardless of its carrier. */
  readonly isUp: boolean;
  readonly hasCarrier: boolean;
  /** RFC 2863, in lower case. */
  readonly operState: string;
  /** Whether we created it: its name starts with `hf-`, it has an altname `holdfast:…`, or it is in the link group 218. */
  readonly isOurs: boolean;
  readonly altnames: readonly string[];
  /** Our fixed speed and duplex, or the driver's if they differ; absent: negotiated, or not set by us. */
  readonly fixed?: { readonly speedMbps: number; readonly duplex: "full" | "half" };
}

/** An IPv4 address of a link. */
export interface AddressState {
  readonly link: string;
  /** With its prefix length: `192.0.2.1/24`. */
  readonly address: string;
  readonly isOurs: boolean;
  /** Whether a DHCP client set it, so that it has a lifetime. */
  readonly isDynamic: boolean;
  /** Whether the kernel made no route to its subnet (IFA_F_NOPREFIXROUTE). */
  readonly hasNoRoute?: boolean;
}

/** rtm_scope of rtnetlink(7). Our default routes use `site`, which is rare elsewhere. */
export type RouteScope = "global" | "site" | "link" | "host";

export type RouteKind = "unicast" | "unreachable" | "blackhole" | "prohibit";

/** An IPv4 route, keyed by table, destination and metric as in the kernel. Routes with protocol 218 are ours. */
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
  /** Whether the gateway counts as reachable without a matching address. */
  readonly isOnLink: boolean;
  /** RTA_PREFSRC. */
  readonly source?: string;
}

/** An IPv4 policy rule. Rules with protocol 218 are ours. */
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
  /** Ignores routes of the table with a prefix of this length or shorter (`suppress_prefixlength` of ip-rule(8)). */
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
 * The table `inet holdfast`. `digest` is that of the loaded text, from the table's comment; empty if another program changed the
 * table. `text` is the kernel's listing without counters and handles, as a digest.
 */
export interface FirewallState {
  readonly digest: string;
  readonly text: string;
}

/** The current state of this network namespace, including objects of other programs, which are not changed. */
export interface NetworkState {
  readonly links: readonly LinkState[];
  readonly addresses: readonly AddressState[];
  /** Routes of every table except `local`. */
  readonly routes: readonly RouteState[];
  readonly rules: readonly RuleState[];
  readonly firewall?: FirewallState;
  /** Values by dotted sysctl(8) name; only those that a target names. */
  readonly sysctls: ReadonlyMap<string, string>;
  /** Links on which our DHCP client runs. */
  readonly dhcp: ReadonlySet<string>;
  /** Links whose client ignores its lease's default route. */
  readonly dhcpWithoutGateway?: readonly string[];
  /** Gateway and name servers of our clients' leases, by link. */
  readonly leases?: Readonly<Record<string, LeaseOffer>>;
  /** The name servers that we have set; absent otherwise. */
  readonly nameServers?: readonly string[];
}

/**
 * The desired state. Lists only our objects: ours that are missing here are removed, others stay. An identical object of another
 * program counts as present.
 */
export interface NetworkTarget {
  readonly links: readonly LinkTarget[];
  readonly addresses: readonly AddressTarget[];
  readonly routes: readonly Omit<RouteState, "protocol">[];
  readonly rules: readonly Omit<RuleState, "protocol">[];
  /** The whole text of the table for `nft -f`, without its comment; absent: no table. */
  readonly firewall?: string;
  /** Whether an existing table stays as it is. */
  readonly keepsFirewall?: boolean;
  readonly sysctls: ReadonlyMap<string, string>;
  readonly dhcp: ReadonlySet<string>;
  /** Links whose client ignores its lease's default route. */
  readonly dhcpWithoutGateway?: readonly string[];
  readonly nameServers?: readonly string[];
  /** Whether the target was observed: objects missing here are removed even while a lease is pending. */
  readonly isExact?: boolean;
}

/** A desired address. */
export interface AddressTarget {
  readonly link: string;
  readonly address: string;
  /** Whether to omit the subnet route that the kernel makes in the table main. */
  readonly hasNoRoute?: boolean;
}

/** A desired link. A link with a `kind` is created and removed by us; any other exists and is only adjusted. */
export interface LinkTarget {
  readonly name: string;
  readonly kind?: "vlan" | "vrf";
  readonly parent?: string;
  readonly vlanId?: number;
  readonly table?: number;
  readonly master?: string;
  readonly mtu?: number;
  readonly isUp: boolean;
  /** Fixed speed and duplex (ethtool(8)); absent: negotiated. */
  readonly fixed?: { readonly speedMbps: number; readonly duplex: "full" | "half" };
}
