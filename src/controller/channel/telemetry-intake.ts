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
import type { AuditParts, EventLog, EventParts } from "../events/service.ts";
import { keptOutput } from "../containers/kept-output.ts";
import { keptDetails } from "../stats/gateway-details.ts";
import { keptFlows } from "../stats/flows.ts";
import { keptSamples, newRecords, sortRecords } from "../stats/telemetry.ts";
import { isReservedEvent } from "../events/control-plane-events.ts";
import type { Transact } from "../store/transact.ts";
import type { AuditStore } from "../events/audit-store.ts";
import type { ContainerOutputStore } from "../containers/output-store.ts";
import type { EventStore } from "../events/store.ts";
import type { FlowStore } from "../stats/flow-store.ts";
import type { GatewayDetailsStore } from "../stats/gateway-details-store.ts";
import type { NodeStore } from "../nodes/store.ts";
import type { TelemetryStore } from "../stats/telemetry-store.ts";
import type { Refusals } from "./refusals.ts";
import type { NodeLabel } from "../events/records.ts";

/** Stores of an open transaction that stores records. */
export interface TelemetryParts extends EventParts, AuditParts {
  readonly audits: Pick<AuditStore, "add" | "trim">;
  readonly containerOutput: Pick<ContainerOutputStore, "add">;
  readonly events: Pick<EventStore, "add" | "trim">;
  readonly flows: Pick<FlowStore, "add">;
  readonly gatewayDetails: Pick<GatewayDetailsStore, "add">;
  readonly nodes: Pick<NodeStore, "label" | "credentials">;
  readonly telemetry: Pick<TelemetryStore, "last" | "setLast" | "addMetric">;
}

export interface TelemetryIntakeDeps {
  readonly store: Transact<TelemetryParts>;
  readonly events: Pick<EventLog, "relay" | "relayAudit">;
  readonly refusals: Pick<Refusals, "note">;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Stores pushed records once each: skips acknowledged ones, counts and skips malformed ones. */
export interface TelemetryIntake {
  /** Stores new records and returns the last stored sequence number. */
  take(uid: string, push: TelemetryPush): Promise<number>;
}

/** Records that were not stored: the reasons of those that are invalid, and the types of events that nodes may not send. */
interface Skipped {
  readonly bad: readonly string[];
  readonly reserved?: readonly string[];
}

export function telemetryIntake({ store, events, refusals, clock, log }: TelemetryIntakeDeps): TelemetryIntake {
  const keep = async (
    tx: TelemetryParts,
    node: NodeLabel,
    stream: StreamName,
    records: readonly JsonObject[],
  ): Promise<Skipped> => {
    const outside = (bad: readonly string[], count: number, reason: string): Skipped => ({
      bad: [...bad, ...Array<string>(count).fill(`${reason}: outside the retention period`)],
    });
    const now = clock.now() / 1000;
    switch (stream) {
      case "events": {
        const { good, bad } = sortRecords(NodeEvent, records);
        const allowed = good.filter(({ eventType }) => !isReservedEvent(eventType));
        for (const event of allowed) await events.relay(tx, node, event);
        await tx.events.trim(node.uid, good.length);
        const reserved = good.map(({ eventType }) => eventType).filter((eventType) => isReservedEvent(eventType));
        return { bad, reserved };
      }
      case "audits": {
        const { good, bad } = sortRecords(NodeAudit, records);
        for (const audit of good) await events.relayAudit(tx, node, audit);
        await tx.audits.trim(node.uid, good.length);
        return { bad };
      }
      case "metrics": {
        const { good, bad } = sortRecords(MetricSample, records);
        const kept = keptSamples(good, now);
        for (const sample of kept) await tx.telemetry.addMetric(node.uid, sample);
        return outside(bad, good.length - kept.length, "t");
      }
      case "flows": {
        const { good, bad } = sortRecords(FlowRecord, records);
        const kept = keptFlows(good, now);
        await tx.flows.add(node.uid, kept);
        return outside(bad, good.length - kept.length, "endTime");
      }
      case "gateway-details": {
        const { good, bad } = sortRecords(GatewayDetails, records);
        const kept = keptDetails(good, now);
        await tx.gatewayDetails.add(node, kept);
        return outside(bad, good.length - kept.length, "time");
      }
      case "output": {
        const { good, bad } = sortRecords(ContainerOutput, records);
        const kept = keptOutput(good, now);
        await tx.containerOutput.add(node.uid, kept);
        return outside(bad, good.length - kept.length, "at");
      }
    }
  };
  const storeNew = (uid: string, push: TelemetryPush) =>
    store.transact(async (tx) => {
      const node = await tx.nodes.label(uid);
      const acknowledged = await tx.telemetry.last(uid, push.stream);
      const { records, last } = newRecords(acknowledged, push);
      // A repeated batch has no further cost.
      if (node === undefined || records.length === 0) return { last: acknowledged, bad: [], reserved: [] };
      const { bad, reserved = [] } = await keep(tx, node, push.stream, records);
      if (last !== acknowledged) await tx.telemetry.setLast(uid, push.stream, last);
      const address = reserved.length === 0 ? undefined : (await tx.nodes.credentials(uid))?.lastIp;
      return { last, bad, reserved, address };
    });
  const skipped = new AggregatedLog(log, clock);
  return {
    async take(uid, push) {
      const { last, bad, reserved, address = "unknown" } = await storeNew(uid, push);
      for (const eventType of reserved) {
        refusals.note("reserved-event", { uid, address, message: `nodes may not send the event type ${eventType}` });
      }
      if (bad.length > 0) {
        const fields = { node: uid, stream: push.stream, bad: bad.length, first: bad[0] };
        skipped.warn(`${uid} ${push.stream}`, fields, "records skipped");
      }
      return last;
    },
  };
}
