import type { ServerHttp2Stream } from "node:http2";
import type { OverlayFlow, OverlayReason, Place } from "../../../protocol/overlay/overlay.ts";
import type { Offered } from "../../listeners/targets.ts";
import type { TwoWayLimiters } from "../../limits/rate-limiter.ts";
import { codeOf, resetStream } from "../../flow/stream-reset.ts";
import { refusalHeaders, type FlowRequest } from "../transport/wire.ts";
import { defined } from "../../../lib/defined.ts";

/** A flow that a peer opened to a service of this node. */
export interface ServedFlow {
  readonly peer: string;
  readonly request: FlowRequest;
  /** Returns its record as if it ended now. */
  record(): OverlayFlow;
  start(): void;
  /** Resets both sides. */
  abort(reason: OverlayReason): void;
  /** Ends the flow if it was idle for too long; `now` is monotonic, in milliseconds. */
  sweep(now: number): void;
}

/** Options of a flow of any protocol. */
export interface ServedFlowOptions {
  readonly stream: ServerHttp2Stream;
  readonly peer: string;
  readonly request: FlowRequest;
  readonly offered: Offered;
  /** Returns why the session below the stream ended, once it has. */
  readonly lost: () => OverlayReason | undefined;
  /** Rate limits over all tunnels. */
  readonly tunnels: TwoWayLimiters;
  readonly startedAt: number;
  /**
   * Called once at the end. `sent` is present if the flow was aborted and the peer can be asked how many of these bytes
   * it received.
   */
  readonly onEnd: (flow: ServedFlow, record: OverlayFlow, sent?: number) => void;
}

/** Result of a flow. */
export interface Outcome {
  /** Local and remote address of the connection to the backend. */
  readonly from?: Place | undefined;
  readonly to?: Place | undefined;
  readonly bytesIn?: number;
  readonly bytesOut?: number;
  readonly reason?: OverlayReason | undefined;
}

/** Builds the record of a flow from a peer; its client and connector are as reported by the peer. */
export function servedRecord(
  peer: string,
  { service, protocol, flow, connector = "", client }: FlowRequest,
  { from, to, bytesIn = 0, bytesOut = 0, reason }: Outcome,
  times: { readonly startedAt: number; readonly endedAt: number },
): OverlayFlow {
  return {
    id: flow,
    listener: "",
    connector,
    peer,
    service,
    protocol,
    sourceIp: client.ip,
    sourcePort: client.port,
    ...(to === undefined ? {} : { destIp: to.ip, destPort: to.port }),
    ...defined({ origin: from }),
    sourceBytes: bytesIn,
    destBytes: bytesOut,
    ...times,
    ...defined({ reason }),
  };
}

/** Refuses an unanswered flow; resets an answered one. */
export function refuse(stream: ServerHttp2Stream, reason: OverlayReason): void {
  if (stream.destroyed || stream.closed) return;
  if (stream.headersSent) return resetStream(stream, codeOf(reason));
  stream.on("error", () => undefined).resume();
  stream.respond(refusalHeaders(reason), { endStream: true });
}
