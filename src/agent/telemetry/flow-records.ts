import type { Clock } from "../../host/clock.ts";
import type { OverlayFlow, OverlayReason } from "../../protocol/overlay/overlay.ts";
import { flowMeta } from "../../protocol/overlay/flow-meta.ts";
import { flowFlags, type FlowRecord } from "../../protocol/documents/telemetry.ts";
import type { Spool } from "./spool.ts";
import { defined } from "../../lib/defined.ts";

/** Takes the overlay's ended flows for the control plane. */
export interface FlowRecorder {
  /** Spools a batch, and sends at 500 waiting records or when the oldest is ten seconds old. */
  take(flows: readonly OverlayFlow[]): void;
  close(): void;
}

/** Display names of nodes. */
export interface FlowNames {
  /** Name of this node. */
  readonly own: () => string;
  /** Returns the name of another node by uid. */
  readonly nameOf: (uid: string) => string;
}

export interface FlowRecorderOptions {
  readonly clock: Clock;
  readonly spool: Spool;
  readonly names: FlowNames;
  /** Called when there is enough for a message. */
  readonly onReady: () => void;
}

const SEND = { records: 500, afterMs: 10_000 };
/** The last millisecond with a four-digit year in ISO 8601. */
const MAX_TIME = 253_402_300_799_999;

export function flowRecorder({ clock, spool, names, onReady }: FlowRecorderOptions): FlowRecorder {
  let waiting = 0;
  let cancel: (() => void) | undefined;
  const send = (): void => {
    cancel?.();
    cancel = undefined;
    waiting = 0;
    onReady();
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
 * Builds the platform's record of a flow. A flow with another node names both, the connector's as the source; any other is `local` at both
 * ends. Unknown values are empty or 0, such as the backend of a flow that the service's node refused. Pure.
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
 * Returns the bits for the reason of a denied flow, or 0. A target that failed, a limit, and a broken flow are no denial: they have only a
 * reason.
 */
function deniedFlags(reason: OverlayReason | undefined): number {
  switch (reason) {
    case "source-not-permitted":
    case "not-granted":
    case "literal-not-permitted":
    case "relay-refused":
      return flowFlags["no-acl-match"];
    // The connector's protocol differs from the service's: a route exists, but no rule admits the flow.
    case "protocol-mismatch":
      return flowFlags["no-rule-match"];
    // No destination.
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
