import type { NetworkFeatures as Features } from "../../../host/network/features.ts";
import type { ForwardDrop } from "../../../host/network/firewall/forward-drops.ts";
import type { NetworkRecord } from "../../../host/network/state/record.ts";
import type { NetworkState } from "../../../host/network/state/state.ts";
import type { Issue } from "../../../protocol/documents/reconcile.ts";
import type { NetworkConfig } from "../../../protocol/sections/network/config.ts";
import type { NatMemo } from "./firewall-nats.ts";

/** The ends of the socket that carries the control session, or carried the last one. */
export interface Carrier {
  readonly local: string;
  readonly remote: string;
}

/** What of the kernel and the tools of this machine the section depends on. */
export type NetworkFeatures = Pick<Features, "vlan" | "vrf" | "nft" | "dhcp" | "reasons">;

/** A speed and duplex that the driver of a link cannot fix, and why. */
export interface Unfixable {
  readonly speedMbps: number;
  readonly duplex: "full" | "half";
  readonly reason: string;
}

/** The section after reading, and where in the document its parts stand. */
export interface NetworkDesired {
  readonly config: NetworkConfig;
  /** JSON paths by the names of interfaces, VLANs and VRFs. */
  readonly paths: ReadonlyMap<string, string>;
  /** Only saves time. */
  readonly memo?: NatMemo;
}

/** What the machine has, and what else a plan depends on. */
export interface NetworkActual {
  readonly state: NetworkState;
  readonly features: NetworkFeatures;
  readonly record: NetworkRecord;
  readonly carrier: Carrier | undefined;
  /** IPv4 addresses of the gateways that this node dials. */
  readonly gateways: readonly string[];
  /** The `local` addresses of paths to gateways. */
  readonly pathSources: readonly string[];
  /** What the drivers of links have refused, by link. */
  readonly unfixable: ReadonlyMap<string, Unfixable>;
  /** The MTU of an interface whose entry gives none. */
  readonly defaultMtu: number;
  /** Chains of others that refuse what this machine forwards. */
  readonly forwardDrops: readonly ForwardDrop[];
  /** This node holds what the active member of its cluster holds. */
  readonly isActiveMember: boolean;
}

/** The path of something in the document, or of the section when it is not in it. */
export function pathOf({ paths }: NetworkDesired, name: string): string {
  return paths.get(name) ?? "network";
}

/** What keeps a part of the section from being put to work. */
export function networkIssue(path: string, code: string, text: string): Issue {
  return { path: path.slice(0, 512), code, message: `${path}: ${text}`.slice(0, 1024) };
}
