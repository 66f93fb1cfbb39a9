import type { Logger } from "pino";
import { AggregatedLog } from "../../host/aggregated-log.ts";
import type { Clock } from "../../host/clock.ts";
import {
  ContainerOutput,
  FlowRecord,
  GatewayDetails,
  MetricSample,
  NodeAudit,
  NodeEvent,
  type StreamName,
  type TelemetryPush,
} from "../../protocol/documents/telemetry.ts";
import type { JsonObject } from "../../protocol/values/values.ts";
import type { EventLog } from "../events/service.ts";
import { keptOutput } from "../containers/kept-output.ts";
import { keptDetails } from "../stats/gateway-details.ts";
import { keptFlows } from "../stats/flows.ts";
import { keptSamples, newRecords, sortRecords } from "../stats/telemetry.ts";
import { isReservedEvent } from "../events/control-plane-events.ts";
import type { Atomic } from "../store/atomic.ts";
import type { AuditStore } from "../events/audit-store.ts";
import type { ContainerOutputStore } from "../containers/output-store.ts";
import type { EventStore } from "../events/store.ts";
import type { FlowStore } from "../stats/flow-store.ts";
import type { GatewayDetailsStore } from "../stats/gateway-details-store.ts";
import type { NodeStore } from "../nodes/store.ts";
import type { TelemetryStore } from "../stats/telemetry-store.ts";
import type { Refusals } from "./refusals.ts";
import type { NodeLabel } from "../events/records.ts";

export interface TelemetryIntakeDeps {
  readonly store: Atomic & {
    readonly audits: AuditStore;
    readonly containerOutput: ContainerOutputStore;
    readonly events: EventStore;
    readonly flows: FlowStore;
    readonly gatewayDetails: GatewayDetailsStore;
    readonly nodes: NodeStore;
    readonly telemetry: TelemetryStore;
  };
  readonly events: EventLog;
  readonly refusals: Refusals;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Stores pushed records once each: skips acknowledged ones, counts and skips malformed ones. */
export interface TelemetryIntake {
  /** Stores new records and returns the last stored sequence number. */
  take(uid: string, push: TelemetryPush): number;
}

export function telemetryIntake({ store, events, refusals, clock, log }: TelemetryIntakeDeps): TelemetryIntake {
  const refuse = (uid: string, eventType: string): void => {
    const address = store.nodes.credentials(uid)?.lastIp ?? "unknown";
    refusals.note("reserved-event", { uid, address, message: `nodes may not send the event type ${eventType}` });
  };
  const keep = (node: NodeLabel, stream: StreamName, records: readonly JsonObject[]): readonly string[] => {
    switch (stream) {
      case "events": {
        const { good, bad } = sortRecords(NodeEvent, records);
        for (const event of good) {
          if (isReservedEvent(event.eventType)) refuse(node.uid, event.eventType);
          else events.relay(node, event);
        }
        store.events.trim(node.uid, good.length);
        return bad;
      }
      case "audits": {
        const { good, bad } = sortRecords(NodeAudit, records);
        for (const audit of good) events.relayAudit(node, audit);
        store.audits.trim(node.uid, good.length);
        return bad;
      }
      case "metrics": {
        const { good, bad } = sortRecords(MetricSample, records);
        const kept = keptSamples(good, clock.now() / 1000);
        for (const sample of kept) store.telemetry.addMetric(node.uid, sample);
        return [...bad, ...Array<string>(good.length - kept.length).fill("t: outside the retention period")];
      }
      case "flows": {
        const { good, bad } = sortRecords(FlowRecord, records);
        const kept = keptFlows(good, clock.now() / 1000);
        store.flows.add(node.uid, kept);
        return [...bad, ...Array<string>(good.length - kept.length).fill("endTime: outside the retention period")];
      }
      case "gateway-details": {
        const { good, bad } = sortRecords(GatewayDetails, records);
        const kept = keptDetails(good, clock.now() / 1000);
        store.gatewayDetails.add(node, kept);
        return [...bad, ...Array<string>(good.length - kept.length).fill("time: outside the retention period")];
      }
      case "output": {
        const { good, bad } = sortRecords(ContainerOutput, records);
        const kept = keptOutput(good, clock.now() / 1000);
        store.containerOutput.add(node.uid, kept);
        return [...bad, ...Array<string>(good.length - kept.length).fill("at: outside the retention period")];
      }
    }
  };
  const skipped = new AggregatedLog(log, clock);
  return {
    take: (uid, push) =>
      store.atomic(() => {
        const node = store.nodes.label(uid);
        const acknowledged = store.telemetry.last(uid, push.stream);
        if (node === undefined) return acknowledged;
        const { records, last } = newRecords(acknowledged, push);
        // A repeated batch has no further cost.
        if (records.length === 0) return acknowledged;
        const bad = keep(node, push.stream, records);
        if (bad.length > 0) {
          const fields = { node: uid, stream: push.stream, bad: bad.length, first: bad[0] };
          skipped.warn(`${uid} ${push.stream}`, fields, "records skipped");
        }
        if (last !== acknowledged) store.telemetry.setLast(uid, push.stream, last);
        return last;
      }),
  };
}
