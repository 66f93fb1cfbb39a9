import type { ConfirmRequest } from "../../protocol/values/commit.ts";
import type { Device } from "../../protocol/documents/claims.ts";
import type { Config } from "../../protocol/documents/documents.ts";
import type { DocumentApplied, Heartbeat } from "../../protocol/channel/methods.ts";
import type { ShadowMap } from "../../protocol/values/shadow.ts";
import type { LifecycleState, NodeState, NodeType } from "../../protocol/values/values.ts";

import type { ClientKeys, KeyForm, OwnKeys } from "./client-keys.ts";
import type { Location } from "./locations.ts";

/** A node in the control plane, as lists have it. Units as on the wire: `lastConnect` in milliseconds, the other times in seconds. */
export interface ListedNode {
  readonly uid: string;
  readonly name: string;
  readonly fqdn: string;
  readonly domain: string;
  readonly org: string;
  readonly type: NodeType;
  readonly state: NodeState;
  readonly lifecycleState: LifecycleState | undefined;
  readonly cluster: string | undefined;
  readonly tags: Readonly<Record<string, string>>;
  /** Tags of its cluster, also those that its own override; undefined without a cluster. */
  readonly inheritedTags?: Readonly<Record<string, string>> | undefined;
  readonly keys: OwnKeys;
  /** Public keys that clients keep for it, by name. */
  readonly clientKeys?: ClientKeys | undefined;
  /** Form in which its keys are shown; text by default. */
  readonly keyForm?: KeyForm | undefined;
  readonly isOnline: boolean;
  readonly lastIp: string | undefined;
  /** Place of that address. */
  readonly location?: Location | undefined;
  /** Address blocks from which it may connect; undefined without a lock. */
  readonly lockedTo?: readonly string[] | undefined;
  /** Source address outside them, while it connects from one. */
  readonly unauthorizedIp?: string | undefined;
  readonly lastConnect: number | undefined;
  readonly disconnectTime: number | undefined;
  readonly createdAt: number;
  /** Provisioning order that its license was issued for. */
  readonly orderID?: string | undefined;
  readonly device: Device | undefined;
  readonly heartbeat: (Heartbeat & { readonly receivedAt: number }) | undefined;
  readonly config: Config;
  /** Requested confirmation of its latest change. */
  readonly confirm?: ConfirmRequest | undefined;
  readonly reported: ShadowMap;
  /** `document.<name>.version` of each document that the node has not acknowledged. */
  readonly desired: ShadowMap;
}

/**
 * Part of a node that a list reads only if it shows it; otherwise the part is empty. The `details` are domain, organization, lifecycle
 * state, cluster, address, lock, times and order.
 */
export type Part = "config" | "details" | "heartbeat" | "inheritedTags" | "location" | "shadow";

/** A node in the control plane. */
export interface NodeRecord extends ListedNode {
  /** Latest `document.applied` of each document. */
  readonly applied: Readonly<Partial<Record<DocumentApplied["name"], DocumentApplied>>>;
}
