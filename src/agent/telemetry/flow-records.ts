import type { Clock } from "../../host/clock.ts";
import type { OverlayFlow, OverlayReason } from "../../protocol/overlay/overlay.ts";
import { flowMeta } from "../../protocol/overlay/flow-meta.ts";
import { flowFlags, type FlowRecord } from "../../protocol/documents/telemetry.ts";
import type { Spool } from "./spool.ts";
import { defined } from "../../lib/defined.ts";

/** Takes the overlay's ended flows on their way to the control plane. */
export interface FlowRecorder {
  /** Spools a batch and has it sent when 500 wait or the oldest is ten seconds old. */
  take(flows: readonly OverlayFlow[]): void;
  close(): void;
}

/** What people call nodes. */
export interface FlowNames {
  /** This node. */
  readonly own: () => string;
  /** Another, by its uid. */
  readonly nameOf: (uid: string) => string;
}

export interface FlowRecorderOptions {
  readonly clock: Clock;
  readonly spool: Spool;
  readonly names: FlowNames;
  /** Called when there is something worth a message. */
  readonly look: () => void;
}

const SEND = { records: 500, afterMs: 10_000 };
/** The last millisecond that ISO 8601 writes with four digits of a year. */
const MAX_TIME = 253_402_300_799_999;

export function flowRecorder({ clock, spool, names, look }: FlowRecorderOptions): FlowRecorder {
  let waiting = 0;
  let cancel: (() => void) | undefined;
  const send = (): void => {
    cancel?.();
    cancel = undefined;
    waiting = 0;
    look();
  };
  return {
    take(flows) {
      if (flows.length === 0) return;
      spool.appendAll(
        "flows",
        flows.map((flow) => flowRecordOf(flow, names)),
      );
      waiting += flows.length;
      if (waiting >= SEND.records) send();
      else cancel ??= clock.after(SEND.afterMs, send);
    },
    close: () => cancel?.(),
  };
}

/**
 * The platform's record of a flow: one with another node names both, of which the connector's is the source; any other is `local` at
 * both ends. What is not known is empty or 0, as the backend of a flow that was refused at the service's end. Pure.
 */
export function flowRecordOf(flow: OverlayFlow, names: FlowNames): FlowRecord {
  const { reason, usage } = flow;
  const startedAt = Math.min(flow.startedAt, MAX_TIME);
  // The wall clock may have been set back meanwhile.
  const endedAt = Math.min(Math.max(flow.endedAt, startedAt), MAX_TIME);
  return {
    ...nodesOf(flow, names),
    sourceIP: flow.sourceIp,
    destIP: flow.destIp ?? "",
    sourcePort: flow.sourcePort,
    destPort: flow.destPort ?? 0,
    sourceBytes: flow.sourceBytes,
    destBytes: flow.destBytes,
    startTime: new Date(startedAt).toISOString(),
    endTime: new Date(endedAt).toISOString(),
    protocol: flow.protocol === "tcp" ? "TCP" : "UDP",
    flags: String(deniedFlags(reason)),
    ...defined({ usage }),
    meta: { ...flowMeta(flow), ...(flow.interim === true ? { interim: true } : {}) },
  };
}

function nodesOf(
  { peer, listener }: OverlayFlow,
  { own, nameOf }: FlowNames,
): Pick<FlowRecord, "sourceNode" | "destNode"> {
  if (peer === undefined) return { sourceNode: "local", destNode: "local" };
  const other = nameOf(peer);
  return listener === "" ? { sourceNode: other, destNode: own() } : { sourceNode: own(), destNode: other };
}

/**
 * The bits that say why a flow was denied; 0 for one that was not. A target that answered badly, a limit that was reached and a flow
 * that broke are no denial: for them there is only the reason.
 */
function deniedFlags(reason: OverlayReason | undefined): number {
  switch (reason) {
    case "source-not-permitted":
    case "not-granted":
    case "literal-not-permitted":
    case "relay-refused":
      return flowFlags["no-acl-match"];
    // The connector is of another protocol than the service it names: there is a way, but no rule lets this flow take it.
    case "protocol-mismatch":
      return flowFlags["no-rule-match"];
    // Nowhere to send it.
    case "unknown-service":
    case "service-down":
    case "resolve-failed":
    case "unreachable":
    case "loop":
    case "no-path":
    case "peer-absent":
    case "peer-unproven":
      return flowFlags["no-route"];
    default:
      return 0;
  }
}
