/** The section `network` after reading, with normalized values and checked references. */
export interface NetworkConfig {
  /** Whether the document has the section; without it the WAN is not changed. */
  readonly isPresent: boolean;
  readonly interfaces: readonly NetworkInterface[];
  readonly vrfs: readonly Vrf[];
  /** The default routing context. */
  readonly routing: Routing;
  readonly tunnels: readonly NetworkTunnel[];
  readonly darkMode: boolean;
  /** Between interfaces of the default context. */
  readonly forwarding: boolean;
  readonly bridgeCidr: string;
  /** Interfaces of a VRF that does not exist: they are down, without addresses, and in no list above. */
  readonly held?: readonly string[];
  /** Interfaces with an invalid entry: their state is not changed, and they are in no list above. */
  readonly left?: readonly string[];
}

/** An interface; addresses are written with their prefix length, as `192.0.2.1/24`. */
export interface NetworkInterface {
  readonly nic: string;
  readonly description?: string;
  readonly dhcp: boolean;
  readonly ip?: string;
  readonly gateway?: string;
  readonly dns: readonly string[];
  readonly mtu?: number;
  /** Fixed speed and duplex; absent: negotiated. */
  readonly fixed?: { readonly speedMbps: number; readonly duplex: "full" | "half" };
  readonly vrf?: string;
  readonly isVirtual: boolean;
  readonly addIps: readonly string[];
  readonly ignoreHealthCheck: boolean;
  readonly routes: readonly InterfaceRoute[];
  readonly subInterfaces: readonly SubInterface[];
  /** Only from a cluster: held by the active member. */
  readonly clusterIp?: string;
  /** Only from a cluster: published in the route tables of the cloud by the active member. */
  readonly cloudRoutes?: readonly Pick<InterfaceRoute, "route" | "description">[];
  readonly clusterRouteTables?: readonly string[];
}

export interface InterfaceRoute {
  readonly route: string;
  readonly next?: string;
  readonly description?: string;
}

export interface SubInterface {
  readonly vlanId: number;
  /** The name of the link, at most 15 characters. */
  readonly link: string;
  readonly ip: string;
  readonly addIps: readonly string[];
  /** Addresses of `ip` and `addIps` that come from the cluster; only the active member holds them. */
  readonly roleBound?: readonly string[];
  readonly vrf?: string;
  readonly routes: readonly (InterfaceRoute & { readonly next: string })[];
  readonly description?: string;
}

export interface Vrf extends Routing {
  readonly name: string;
  readonly description?: string;
  readonly forwarding: boolean;
}

export interface Routing {
  readonly routes: readonly VrfRoute[];
  readonly nats: readonly Nat[];
  /** Absent: not in the document. In a VRF nothing passes without one that allows it. */
  readonly acls?: readonly Acl[];
  readonly rules: readonly PolicyRule[];
}

export interface VrfRoute {
  readonly dest: string;
  readonly dev?: string;
  readonly via?: string;
  readonly metric?: number;
  readonly uid?: string;
  readonly description?: string;
}

/** A translation; an absent match is any. Blocks of a pair have the same length, or what is translated to is one address (`/32`). */
export interface Nat {
  readonly source?: string;
  readonly dest?: string;
  readonly toSource?: string;
  readonly toDest?: string;
  readonly masquerade: boolean;
  readonly uid?: string;
  readonly description?: string;
}

export type L4Protocol = "any" | "icmp" | "tcp" | "udp";
export interface PortRange {
  readonly first: number;
  readonly last: number;
}

/** In the order in which they are tried. */
export interface Acl {
  readonly protocol: L4Protocol;
  readonly source: string;
  readonly dest: string;
  readonly ports?: PortRange;
  readonly action: "allow" | "drop" | "reject";
  readonly line?: number;
  readonly uid?: string;
  readonly description?: string;
}

/**
 * A rule of policy routing; the first match decides. `public` is every address that is not `private` (RFC 1918). With `hold` it replaces an
 * invalid rule, and drops every packet that this may match.
 */
export interface PolicyRule {
  /** Its place in the list of the document. */
  readonly index: number;
  readonly line?: number;
  readonly protocol: L4Protocol;
  readonly source: string;
  readonly dest: string;
  readonly ports?: PortRange;
  readonly in?: string;
  readonly action: "accept" | "drop" | "reject" | "forward" | "dnat" | "mirror" | "log" | "hold";
  readonly iface?: string;
  /** `default` is the default context. */
  readonly vrf?: string;
  readonly snat: boolean;
  readonly dnat?: { readonly address: string; readonly port?: number };
  readonly dmac?: string;
  readonly uid?: string;
  readonly description?: string;
}

/** Parsed and stored; no tunnel is made yet. */
export interface NetworkTunnel {
  readonly type: "ipsec" | "gre" | "vnet" | "wireguard";
  readonly name: string;
  readonly enabled: boolean;
}
