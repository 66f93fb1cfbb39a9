import type { ServerHttp2Stream } from "node:http2";
import type { OverlayFlow, OverlayReason, Place } from "../../../protocol/overlay/overlay.ts";
import type { Offered } from "../../listeners/targets.ts";
import type { TunnelLimiters } from "../transport/rate-limits.ts";
import { resetStream } from "../transport/reset.ts";
import { codeOf, refusalHeaders, type FlowRequest } from "../transport/wire.ts";
import { defined } from "../../../lib/defined.ts";

/** A flow that a peer brought to a service of this node. */
export interface ServedFlow {
  readonly peer: string;
  readonly request: FlowRequest;
  /** Its record, as if it ended now. */
  record(): OverlayFlow;
  start(): void;
  /** Ends both sides by a reset. */
  abort(reason: OverlayReason): void;
  /** Ends it when nothing moved for too long; `now` is monotonic. */
  sweep(now: number): void;
}

/** What a flow is made of, whatever it carries. */
export interface ServedFlowOptions {
  readonly stream: ServerHttp2Stream;
  readonly peer: string;
  readonly request: FlowRequest;
  readonly offered: Offered;
  /** Why the session below the stream has ended, once it has. */
  readonly lost: () => OverlayReason | undefined;
  /** The node's limits over all tunnels. */
  readonly tunnels: TunnelLimiters | undefined;
  readonly startedAt: number;
  /** With `sent`, which was read for the peer, the flow was cut, and the peer can be asked how much of it it took. */
  readonly onEnd: (flow: ServedFlow, record: OverlayFlow, sent?: number) => void;
}

/** What came of a flow. */
export interface Outcome {
  /** Where the backend was dialled from, and what was reached. */
  readonly from?: Place | undefined;
  readonly to?: Place | undefined;
  readonly bytesIn?: number;
  readonly bytesOut?: number;
  readonly reason?: OverlayReason | undefined;
}

/** The record of a flow from a peer; its client and connector are what the peer says. */
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

/** Refuses a flow that was not answered yet; one that was is reset. */
export function refuse(stream: ServerHttp2Stream, reason: OverlayReason): void {
  if (stream.destroyed || stream.closed) return;
  if (stream.headersSent) return resetStream(stream, codeOf(reason));
  stream.on("error", () => undefined).resume();
  stream.respond(refusalHeaders(reason), { endStream: true });
}
