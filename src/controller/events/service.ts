import { randomUUIDv7 } from "node:crypto";
import type { Clock } from "../../host/clock.ts";
import { UPGRADE_EVENT, type NodeAudit, type NodeEvent } from "../../protocol/documents/telemetry.ts";
import { alertChange } from "./alert-rules.ts";
import { CONTROL_PLANE_AUDIT, nodeAuditCategory, type ControlPlaneEvent } from "./control-plane-events.ts";
import type { AlertStore } from "./alert-store.ts";
import type { AuditStore } from "./audit-store.ts";
import type { EventStore } from "./store.ts";
import type { OrgAuditStore } from "./org-audit-store.ts";
import type { RequestScope } from "../http/sources.ts";
import type {
  AuditFilter,
  AuditRecord,
  ChangedItem,
  EventFilter,
  EventRecord,
  RecordOrigin,
  NodeLabel,
} from "./records.ts";

/** An event raised by the control plane. Defaults: current time, state UNKNOWN. */
export type OwnEvent = Pick<NodeEvent, "level" | "message"> &
  Partial<Pick<NodeEvent, "state" | "details" | "timestamp">> & { readonly eventType: ControlPlaneEvent };

/** Open alerts of a node above which its own events open no more; those of the control plane do. */
const MAX_NODE_ALERTS = 256;

/** Stores that events are written to: those of an open transaction, or of the database. */
export interface EventParts {
  readonly events: Pick<EventStore, "add">;
  readonly alerts: Pick<AlertStore, "open" | "close" | "countOf">;
  readonly orgAudits: Pick<OrgAuditStore, "add">;
}

export interface AuditParts {
  readonly audits: Pick<AuditStore, "add">;
}

/** Stores all events and opens and closes alerts accordingly. Recording needs a transaction, `tx`. */
export interface EventLog {
  record(tx: EventParts, node: NodeLabel, event: OwnEvent): Promise<EventRecord>;
  /** Stores an event of a node; the caller has checked that the node may send it. */
  relay(tx: EventParts, node: NodeLabel, event: NodeEvent): Promise<EventRecord>;
  /** Records a change through the API, as an event (INFO, without an alert) and an audit. Without a node it belongs to the domain. */
  change(tx: EventParts, node: NodeLabel | undefined, user: string, message: string, item?: ChangedItem): Promise<void>;
  /** Records a change as an audit alone. */
  auditChange(
    tx: Pick<EventParts, "orgAudits">,
    node: NodeLabel | undefined,
    user: string,
    message: string,
    item?: ChangedItem,
  ): Promise<void>;
  /** Records an action of a user on a node in the audit trail. */
  audit(tx: AuditParts, node: NodeLabel, value: string): Promise<void>;
  /** Stores an audit record of a node. */
  relayAudit(tx: AuditParts, node: NodeLabel, audit: NodeAudit): Promise<void>;
  find(filter: EventFilter): Promise<{ readonly total: number; readonly items: readonly EventRecord[] }>;
  get(nodeId: string, uid: string): Promise<EventRecord | undefined>;
  /** Returns the audit trail of nodes, newest first. */
  audits(filter: AuditFilter): Promise<{ readonly total: number; readonly items: readonly AuditRecord[] }>;
}

/** Returns type and id of what a change is about: a cluster has no UID. */
function itemOf(node: NodeLabel | undefined, org: string): readonly [type: string, id: string] {
  if (node === undefined) return ["organization", org];
  return node.uid === "" ? ["cluster", node.fqdn] : ["node", node.uid];
}

/** Subject of the events that are not about a node. */
const SUBJECTS: ReadonlyMap<string, EventRecord["subject"]> = new Map([
  [UPGRADE_EVENT, "Upgrade"],
  ["Certificate Expiring", "Certificate"],
]);

/** Returns the subject of an event whose type does not determine it: a node, a cluster (by its name), or else the organization. */
function subjectOf({ uid, name }: NodeLabel): EventRecord["subject"] {
  if (uid !== "") return "Node";
  return name === "" ? "Org" : "Cluster";
}

export function eventLog(
  store: { readonly events: Pick<EventStore, "find" | "get">; readonly audits: Pick<AuditStore, "find"> },
  clock: Clock,
  identity: { readonly org: string; readonly domain: string },
  requests: Pick<RequestScope, "address">,
): EventLog {
  const keep = async (
    { events, alerts }: EventParts,
    node: NodeLabel,
    event: Omit<NodeEvent, "timestamp"> & { readonly timestamp?: number },
    origin: RecordOrigin,
  ): Promise<EventRecord> => {
    const nowMs = clock.now();
    const entry: EventRecord = {
      uid: randomUUIDv7(),
      eventType: event.eventType,
      level: event.level,
      message: event.message,
      timestamp: event.timestamp ?? Math.floor(nowMs / 1000),
      receivedTime: nowMs / 1000,
      details: event.details,
      state: event.state,
      subject: SUBJECTS.get(event.eventType) ?? subjectOf(node),
      orgId: identity.org,
      nodeId: node.uid,
      nodeName: node.name,
      domain: identity.domain,
      fqdn: node.fqdn,
      origin,
    };
    await events.add(entry);
    const { opens, clears } = alertChange(entry);
    for (const type of clears) await alerts.close(node.uid, type);
    const isFull = opens !== undefined && origin === "node" && (await alerts.countOf(node.uid)) >= MAX_NODE_ALERTS;
    if (isFull) return entry;
    // A node whose clock is ahead must not keep an alert open beyond its lifetime.
    if (opens !== undefined) await alerts.open({ ...entry, timestamp: Math.min(entry.timestamp, nowMs / 1000) });
    return entry;
  };
  const record: EventLog["record"] = (tx, node, event) =>
    keep(tx, node, { state: "UNKNOWN", details: {}, ...event }, "control-plane");
  const auditChange: EventLog["auditChange"] = ({ orgAudits }, node, user, message, item = { action: "change" }) => {
    const [type, id] = itemOf(node, identity.org);
    return orgAudits.add({
      uid: randomUUIDv7(),
      kind: "config",
      auditType: item.action,
      itemType: item.type ?? type,
      itemId: item.id ?? id,
      userName: user,
      ip: requests.address(),
      message,
      timestamp: Math.floor(clock.now() / 1000),
    });
  };
  return {
    find: (filter) => store.events.find(filter),
    get: (nodeId, uid) => store.events.get(nodeId, uid),
    audits: (filter) => store.audits.find(filter),
    record,
    relay: (tx, node, event) => keep(tx, node, event, "node"),
    async change(tx, node, user, message, item) {
      const label = node ?? { uid: "", name: "", fqdn: identity.domain };
      await record(tx, label, { eventType: "Configuration Change", level: "INFO", message, details: { user } });
      await auditChange(tx, node, user, message, item);
    },
    auditChange,
    audit: ({ audits }, { uid: nodeId, fqdn }, value) =>
      audits.add({
        nodeId,
        fqdn,
        category: CONTROL_PLANE_AUDIT,
        value,
        timestamp: Math.floor(clock.now() / 1000),
        origin: "control-plane",
      }),
    relayAudit: ({ audits }, { uid: nodeId, fqdn }, { category, value, timestamp }) =>
      audits.add({
        nodeId,
        fqdn,
        category: nodeAuditCategory(category),
        value,
        // A record dated ahead would outlive the retention period.
        timestamp: Math.min(timestamp, Math.floor(clock.now() / 1000)),
        origin: "node",
      }),
  };
}
