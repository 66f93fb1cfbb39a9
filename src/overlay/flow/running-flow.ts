import type { OverlayFlow, OverlayListener, OverlayReason, Place } from "../../protocol/overlay/overlay.ts";
import { defined } from "../../lib/defined.ts";

/** Fields of a flow that its record needs. A refused flow has no target and carried no bytes. */
export interface Recorded {
  /** The same at both ends. */
  readonly id: string;
  readonly sourceIp: string;
  readonly sourcePort: number;
  readonly dialled: Dialled;
  readonly startedAt: number;
  readonly bytesIn?: number;
  readonly bytesOut?: number;
  readonly target?: { readonly label: string; readonly peer?: string };
  /** Backend that this node connected to. */
  readonly destination?: Place | undefined;
}

/** Address and port that a client dialled. The address is unknown for datagrams to a socket bound to all addresses. */
export interface Dialled {
  readonly ip?: string | undefined;
  readonly port: number;
}

/** A flow of a listener, to a service here or on another node. */
export interface RunningFlow extends Recorded {
  readonly bytesIn: number;
  readonly bytesOut: number;
  /** Reports whether the flow has reached its target. */
  readonly isConnected: boolean;
  /** Makes the record of an aborted flow agree with the other end's. */
  readonly agreed?: ((record: OverlayFlow) => Promise<OverlayFlow>) | undefined;
  start(): void;
  abort(reason: OverlayReason): void;
  /** Ends the flow if it was idle for too long; `now` is monotonic, in milliseconds. */
  sweep(now: number, idleTimeoutMs: number): void;
}

/** Builds the record of an ended flow. */
export function flowRecord(
  { key, connector, protocol, target }: OverlayListener,
  flow: Recorded,
  endedAt: number,
  reason: OverlayReason | undefined,
): OverlayFlow {
  const { destination } = flow;
  return {
    id: flow.id,
    listener: key,
    connector,
    ...("peer" in target ? { peer: target.peer } : {}),
    service: flow.target?.label ?? ("service" in target ? target.service : `${target.host}:${target.port}`),
    protocol,
    sourceIp: flow.sourceIp,
    sourcePort: flow.sourcePort,
    ...defined({ destIp: flow.dialled.ip }),
    destPort: flow.dialled.port,
    ...defined({ backend: destination }),
    sourceBytes: flow.bytesIn ?? 0,
    destBytes: flow.bytesOut ?? 0,
    startedAt: flow.startedAt,
    endedAt,
    ...defined({ reason }),
  };
}
