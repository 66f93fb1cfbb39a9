import type { Http2Stream } from "node:http2";
import type { Application, OverlayReason } from "../../protocol/overlay/overlay.ts";
import type { Dial } from "../dial/dial.ts";
import type { TunnelLimiters } from "../mesh/transport/rate-limits.ts";

/** Where a flow goes on another node. */
export interface RemoteTarget {
  readonly peer: string;
  /** A service there, or `IP:port`; also what the flow records call it. */
  readonly label: string;
}

/** What is opened towards another node. */
export interface RemoteRequest {
  readonly target: RemoteTarget;
  readonly protocol: "tcp" | "udp";
  readonly application?: Application | undefined;
  /** The same in the records of both ends; chosen when it is left out. */
  readonly flow?: string;
  /** The connector that it came through. */
  readonly connector?: string;
  /** It is a data connection of this control connection, to the port that the service announced there. */
  readonly data?: { readonly control: string; readonly port: number } | undefined;
  readonly client: { readonly ip: string; readonly port: number };
  /** Nothing is to be carried: only what the other node would say is asked for. */
  readonly isQuestion?: true;
}

/** Told of how it went, exactly once unless it was cancelled. */
export interface RemoteUser {
  /**
   * The other node has dialled. `lost` tells why the session below the stream has ended, once it has; `agree` tells the other end of a
   * flow that was cut how many bytes this one took, and resolves to what that one took, undefined when it does not say so soon.
   */
  opened(
    stream: Http2Stream,
    lost: () => OverlayReason | undefined,
    agree: (taken: number) => Promise<number | undefined>,
  ): void;
  failed(reason: OverlayReason): void;
}

/** The way to services of other nodes, and from other nodes to the services here. */
export interface Remote {
  /** Asks another node for a service; `user` is told later. */
  dial(request: RemoteRequest, user: RemoteUser): Dial;
  /** The node's limits over all tunnels. */
  readonly tunnels: TunnelLimiters | undefined;
  /** Flows that other nodes have brought to services here. */
  readonly activeFlows: number;
  /** Ends the flows from other nodes that lead to a service. */
  dropService(name: string): void;
  /** Ends what has been idle for too long; `now` is monotonic. */
  sweep(now: number): void;
}
