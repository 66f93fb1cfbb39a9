import { z } from "zod";
import type { NetworkFeatures as Features } from "../../../host/network/features.ts";
import type { NetworkState } from "../../../host/network/state.ts";
import type { Issue } from "../../../protocol/reconcile.ts";
import type { NetworkConfig } from "../../../protocol/sections/network-config.ts";

/** The ends of the socket that carries the control session, or carried the last one. */
export interface Carrier {
  readonly local: string;
  readonly remote: string;
}

/** What of the kernel and the tools of this machine the section depends on. */
export type NetworkFeatures = Pick<Features, "vlan" | "vrf" | "nft" | "dhcp" | "reasons">;

/** What of the machine was found before it was adjusted, and what else has to outlive the agent. */
export const NetworkRecord = z.object({
  links: z.record(z.string(), z.object({ mtu: z.number(), isUp: z.boolean() })),
  sysctls: z.record(z.string(), z.string()),
  /** The table of each VRF, by its name. */
  vrfs: z.record(z.string(), z.number()),
  /** The texts of the firewall that was loaded and of the one before, by digest. */
  firewalls: z.array(z.object({ digest: z.string(), text: z.string() })),
  /** The interface that was the WAN: what a plan does to the default route must not make another of it. */
  wan: z.exactOptional(z.string()),
});
export type NetworkRecord = z.infer<typeof NetworkRecord>;

/** Of a machine of which nothing was ever adjusted. */
export const EMPTY_RECORD: NetworkRecord = { links: {}, sysctls: {}, vrfs: {}, firewalls: [] };

/** Whether nothing was ever adjusted. */
export function isEmptyRecord({ links, sysctls, vrfs, firewalls }: NetworkRecord): boolean {
  return [links, sysctls, vrfs, firewalls].every((part) => Object.keys(part).length === 0);
}

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
}

/** What the machine has, and what else a plan depends on. */
export interface NetworkActual {
  readonly state: NetworkState;
  readonly features: NetworkFeatures;
  readonly record: NetworkRecord;
  readonly carrier: Carrier | undefined;
  /** What the drivers of links have refused, by link. */
  readonly unfixable: ReadonlyMap<string, Unfixable>;
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
