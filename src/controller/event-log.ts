import { randomUUIDv7 } from "node:crypto";
import type { Clock } from "../host/clock.ts";
import { UPGRADE_EVENT, type NodeAudit, type NodeEvent } from "../protocol/documents/telemetry.ts";
import type { EventRecord, RecordOrigin } from "./fleet.ts";
import { alertChange } from "./model/alerts.ts";
import { CONTROL_PLANE_AUDIT, nodeAuditCategory, type ControlPlaneEvent } from "./model/control-plane-events.ts";
import { lockEvent, type IpLock } from "./model/ip-lock.ts";
import type { Store } from "./store/store.ts";
import type { NodeLabel } from "./store/nodes.ts";

/** An event of the control plane's own; the time is now and the state stateless unless said. */
export type OwnEvent = Pick<NodeEvent, "level" | "message"> &
  Partial<Pick<NodeEvent, "state" | "details" | "timestamp">> & { readonly eventType: ControlPlaneEvent };

/** Where every event passes: stored with what the control plane adds, and alerts opened and closed by it. */
export interface EventLog {
  record(node: NodeLabel, event: OwnEvent): EventRecord;
  /** Takes in what a node raised; the caller made sure that it may. */
  relay(node: NodeLabel, event: NodeEvent): EventRecord;
  /** A change somebody made through the API: INFO, without an alert. */
  change(node: NodeLabel, user: string, message: string): void;
  /** Does something that is in no document, of a node or of none, and records it as a change, or neither. */
  changeElsewhere<T>(user: string, message: string, work: () => T, node?: NodeLabel): T;
  /** Records what somebody did to a node through the API. */
  audit(node: NodeLabel, value: string): void;
  /** Takes in an audit of a node's own. */
  relayAudit(node: NodeLabel, audit: NodeAudit): void;
}

/** Reports that a node begins to connect from an address its lock does not cover, or that this is over. */
export function reportLock(events: Pick<EventLog, "record">, node: NodeLabel, before: IpLock, after: IpLock): void {
  const report = lockEvent(before, after);
  if (report === undefined) return;
  const { isRaised, message, details } = report;
  events.record(node, {
    eventType: "Unauthorized IP",
    level: isRaised ? "WARNING" : "INFO",
    state: isRaised ? "EXCEEDED" : "CLEARED",
    message,
    details,
  });
}

export function eventLog(
  store: Store,
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
      // A node whose clock is ahead must not keep an alert open beyond its day.
      if (opens !== undefined) store.alerts.open({ ...entry, timestamp: Math.min(entry.timestamp, nowMs / 1000) });
      return entry;
    });
  const record = (node: NodeLabel, event: OwnEvent): EventRecord =>
    keep(node, { state: "UNKNOWN", details: {}, ...event }, "control-plane");
  const change = (node: NodeLabel, user: string, message: string): void =>
    void record(node, { eventType: "Configuration Change", level: "INFO", message, details: { user } });
  return {
    record,
    relay: (node, event) => keep(node, event, "node"),
    change,
    changeElsewhere: (user, message, work, node = { uid: "", name: "", fqdn: identity.domain }) =>
      store.atomic(() => {
        const done = work();
        change(node, user, message);
        return done;
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
        // What is dated ahead would be kept for longer than its time.
        timestamp: Math.min(timestamp, Math.floor(clock.now() / 1000)),
        origin: "node",
      }),
  };
}
