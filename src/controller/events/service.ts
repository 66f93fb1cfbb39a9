import { randomUUIDv7 } from "node:crypto";
import type { Clock } from "../../host/clock.ts";
import { UPGRADE_EVENT, type NodeAudit, type NodeEvent } from "../../protocol/documents/telemetry.ts";
import { alertChange } from "./alert-rules.ts";
import { CONTROL_PLANE_AUDIT, nodeAuditCategory, type ControlPlaneEvent } from "./control-plane-events.ts";
import type { Atomic } from "../store/atomic.ts";
import type { AlertStore } from "./alert-store.ts";
import type { AuditStore } from "./audit-store.ts";
import type { EventStore } from "./store.ts";
import type { AuditFilter, AuditRecord, EventFilter, EventRecord, RecordOrigin, NodeLabel } from "./records.ts";

/** An event raised by the control plane. Defaults: current time, state UNKNOWN. */
export type OwnEvent = Pick<NodeEvent, "level" | "message"> &
  Partial<Pick<NodeEvent, "state" | "details" | "timestamp">> & { readonly eventType: ControlPlaneEvent };

/** Stores all events and opens and closes alerts accordingly. */
export interface EventLog {
  record(node: NodeLabel, event: OwnEvent): EventRecord;
  /** Stores an event of a node; the caller has checked that the node may send it. */
  relay(node: NodeLabel, event: NodeEvent): EventRecord;
  /** Records a change through the API: INFO, without an alert. */
  change(node: NodeLabel, user: string, message: string): void;
  /** Runs a change outside the documents and records it in the same transaction; without a node it belongs to the domain. */
  changeOutsideDocuments<T>(user: string, message: string, work: () => T, node?: NodeLabel): T;
  /** Records an action of a user on a node in the audit trail. */
  audit(node: NodeLabel, value: string): void;
  /** Stores an audit record of a node. */
  relayAudit(node: NodeLabel, audit: NodeAudit): void;
  find(filter: EventFilter): { readonly total: number; readonly items: readonly EventRecord[] };
  get(nodeId: string, uid: string): EventRecord | undefined;
  /** Returns the audit trail of nodes, newest first. */
  audits(filter: AuditFilter): { readonly total: number; readonly items: readonly AuditRecord[] };
}

export function eventLog(
  store: Atomic & { readonly alerts: AlertStore; readonly audits: AuditStore; readonly events: EventStore },
  clock: Clock,
  identity: { readonly org: string; readonly domain: string },
): EventLog {
  const keep = (
    node: NodeLabel,
    event: Omit<NodeEvent, "timestamp"> & { readonly timestamp?: number },
    origin: RecordOrigin,
  ): EventRecord =>
    store.atomic(() => {
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
        subject: event.eventType === UPGRADE_EVENT ? "Upgrade" : "Node",
        orgId: identity.org,
        nodeId: node.uid,
        nodeName: node.name,
        domain: identity.domain,
        fqdn: node.fqdn,
        origin,
      };
      store.events.add(entry);
      const { opens, clears } = alertChange(entry);
      for (const type of clears) store.alerts.close(node.uid, type);
      // A node whose clock is ahead must not keep an alert open beyond its lifetime.
      if (opens !== undefined) store.alerts.open({ ...entry, timestamp: Math.min(entry.timestamp, nowMs / 1000) });
      return entry;
    });
  const record = (node: NodeLabel, event: OwnEvent): EventRecord =>
    keep(node, { state: "UNKNOWN", details: {}, ...event }, "control-plane");
  const change = (node: NodeLabel, user: string, message: string): void =>
    void record(node, { eventType: "Configuration Change", level: "INFO", message, details: { user } });
  return {
    find: (filter) => store.events.find(filter),
    get: (nodeId, uid) => store.events.get(nodeId, uid),
    audits: (filter) => store.audits.find(filter),
    record,
    relay: (node, event) => keep(node, event, "node"),
    change,
    changeOutsideDocuments: (user, message, work, node = { uid: "", name: "", fqdn: identity.domain }) =>
      store.atomic(() => {
        const result = work();
        change(node, user, message);
        return result;
      }),
    audit: ({ uid: nodeId, fqdn }, value) =>
      store.audits.add({
        nodeId,
        fqdn,
        category: CONTROL_PLANE_AUDIT,
        value,
        timestamp: Math.floor(clock.now() / 1000),
        origin: "control-plane",
      }),
    relayAudit: ({ uid: nodeId, fqdn }, { category, value, timestamp }) =>
      store.audits.add({
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
