import type { NetworkFeatures as Features } from "../../../host/network/features.ts";
import type { ForwardDrop } from "../../../host/network/firewall/forward-drops.ts";
import type { NetworkRecord } from "../../../host/network/state/record.ts";
import type { NetworkState } from "../../../host/network/state/state.ts";
import type { Issue } from "../../../protocol/documents/reconcile.ts";
import type { NetworkConfig } from "../../../protocol/sections/network/config.ts";
import type { NatMemo } from "./firewall-nats.ts";

/** Endpoints of the control session's socket, or of the last one's. */
export interface Carrier {
  readonly local: string;
  readonly remote: string;
}

/** Kernel and tool features that the section depends on. */
export type NetworkFeatures = Pick<Features, "vlan" | "vrf" | "nft" | "dhcp" | "reasons">;

/** A speed and duplex that the link's driver rejected, with the reason. */
export interface Unfixable {
  readonly speedMbps: number;
  readonly duplex: "full" | "half";
  readonly reason: string;
}

/** The parsed section, and the JSON paths of its parts. */
export interface NetworkDesired {
  readonly config: NetworkConfig;
  /** JSON paths by the names of interfaces, VLANs and VRFs. */
  readonly paths: ReadonlyMap<string, string>;
  /** Cache of compiled translations. */
  readonly memo?: NatMemo;
}

/** Observed state of the machine, and the plan's other inputs. */
export interface NetworkActual {
  readonly state: NetworkState;
  readonly features: NetworkFeatures;
  readonly record: NetworkRecord;
  readonly carrier: Carrier | undefined;
  /** IPv4 addresses of the gateways that this node dials. */
  readonly gateways: readonly string[];
  /** The `local` addresses of paths to gateways. */
  readonly pathSources: readonly string[];
  /** Rejected speeds by link. */
  readonly unfixable: ReadonlyMap<string, Unfixable>;
  /** MTU of interfaces whose entry sets none. */
  readonly defaultMtu: number;
  /** Chains of other programs that drop forwarded packets. */
  readonly forwardDrops: readonly ForwardDrop[];
  /** True if this node holds the addresses of the cluster's active member. */
  readonly isActiveMember: boolean;
}

/** Returns the JSON path of a named part, or of the section if it has none. */
export function pathOf({ paths }: NetworkDesired, name: string): string {
  return paths.get(name) ?? "network";
}

/** Builds an issue of a part that cannot be applied. */
export function networkIssue(path: string, code: string, text: string): Issue {
  return { path: path.slice(0, 512), code, message: `${path}: ${text}`.slice(0, 1024) };
}
