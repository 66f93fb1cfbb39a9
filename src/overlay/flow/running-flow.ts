import type { OverlayFlow, OverlayListener, OverlayReason, Place } from "../../protocol/overlay/overlay.ts";
import { defined } from "../../lib/defined.ts";

/** What a flow record needs to know of a flow; one that was refused has no target and moved nothing. */
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
  /** The backend that was reached on this node. */
  readonly destination?: Place | undefined;
}

/** The address and port that a client dialled; the address is unknown for datagrams to a socket that is bound to all addresses. */
export interface Dialled {
  readonly ip?: string | undefined;
  readonly port: number;
}

/** A flow of a listener, to a service here or on another node. */
export interface RunningFlow extends Recorded {
  readonly bytesIn: number;
  readonly bytesOut: number;
  /** Whether it has reached its target. */
  readonly isConnected: boolean;
  /** Makes the record of one that was cut agree with the other end's. */
  readonly agreed?: ((record: OverlayFlow) => Promise<OverlayFlow>) | undefined;
  start(): void;
  abort(reason: OverlayReason): void;
  /** Ends it when nothing moved for too long; `now` is monotonic. */
  sweep(now: number, idleTimeoutMs: number): void;
}

/** The record of a flow that has ended. */
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
