import type { EventLevel, EventState } from "../../protocol/documents/telemetry.ts";
import type { JsonObject } from "../../protocol/values/values.ts";

/** Writer of a record: the control plane, or the node itself. */
export type RecordOrigin = "control-plane" | "node";

/** An event with the fields that the control plane adds; times in Unix seconds, `uid` sortable by time. */
export interface EventRecord {
  readonly uid: string;
  readonly eventType: string;
  readonly level: EventLevel;
  readonly message: string;
  readonly timestamp: number;
  readonly receivedTime: number;
  readonly details: JsonObject;
  readonly state: EventState;
  /** Kind of the object that the event reports on; `Org` and `Cluster` have no node. */
  readonly subject: "Node" | "Cluster" | "Org" | "Certificate" | "Order" | "Upgrade" | "AlertSuppression";
  readonly orgId: string;
  readonly nodeId: string;
  readonly nodeName: string;
  readonly domain: string;
  readonly fqdn: string;
  readonly origin: RecordOrigin;
}

/** Open alert of one node and event type; closed by its clearing event, by dismissal, or after 24 h. */
export interface AlertRecord {
  readonly uid: string;
  readonly eventType: string;
  readonly message: string;
  readonly nodeId: string;
  readonly nodeName: string;
  readonly timestamp: number;
}

export interface AuditRecord {
  readonly nodeId: string;
  readonly fqdn: string;
  readonly category: string;
  readonly value: string;
  readonly timestamp: number;
  readonly origin: RecordOrigin;
}

/** Subject of an audit of the organization: a change, or an authentication. */
export type OrgAuditKind = "config" | "user";

/** An audit of the organization: who changed what, or who authenticated. Times in Unix seconds, `uid` sortable by time. */
export interface OrgAudit {
  readonly uid: string;
  readonly kind: OrgAuditKind;
  /** `create`, `change`, `delete` or `action` for a change; `success` or `failure` for an authentication. */
  readonly auditType: string;
  readonly itemType: string;
  readonly itemId: string;
  readonly userName: string;
  /** Source address of the request; empty for an audit of an older version. */
  readonly ip: string;
  readonly message: string;
  readonly timestamp: number;
}

export interface OrgAuditFilter extends Partial<
  Pick<OrgAudit, "auditType" | "itemType" | "itemId" | "userName" | "ip">
> {
  readonly kind: OrgAuditKind;
  /** Unix seconds, both inclusive. */
  readonly from?: number;
  readonly to?: number;
  /** Text within the message. */
  readonly details?: string;
  readonly limit: number;
  readonly offset: number;
}

/** Subject of a change; by default the node or cluster of the event, or the organization. */
export interface ChangedItem {
  readonly action: "create" | "change" | "delete" | "action";
  readonly type?: string;
  readonly id?: string;
}

export interface AuditFilter {
  readonly nodeIds?: readonly string[];
  /** Unix seconds, both inclusive. */
  readonly from?: number;
  readonly to?: number;
  readonly limit: number;
  readonly offset: number;
}

export interface EventFilter {
  readonly nodeIds?: readonly string[];
  readonly eventTypes?: readonly string[];
  readonly levels?: readonly EventLevel[];
  readonly subjects?: readonly EventRecord["subject"][];
  /** Unix seconds, both inclusive. */
  readonly from?: number;
  readonly to?: number;
  readonly text?: string;
  readonly sort: { readonly by: "timestamp" | "level"; readonly order: "asc" | "desc" };
  readonly limit: number;
  readonly offset: number;
}

export interface NodeLabel {
  readonly uid: string;
  readonly name: string;
  readonly fqdn: string;
}
