import type { Http2Stream } from "node:http2";
import type { Application, OverlayReason } from "../../protocol/overlay/overlay.ts";
import type { Dial } from "../dial/dial.ts";
import type { TwoWayLimiters } from "../limits/rate-limiter.ts";

/** Target of a flow on another node. */
export interface RemoteTarget {
  readonly peer: string;
  /** A service of the peer, or `IP:port`; flow records show it. */
  readonly label: string;
}

/** A request to open a flow to another node. */
export interface RemoteRequest {
  readonly target: RemoteTarget;
  readonly protocol: "tcp" | "udp";
  readonly application?: Application | undefined;
  /** Flow id, the same in the records of both ends; generated when absent. */
  readonly flow?: string;
  /** Connector that the flow came through. */
  readonly connector?: string;
  /** Present for an FTP data connection: its control connection, and the port that the service announced there. */
  readonly data?: { readonly control: string; readonly port: number } | undefined;
  readonly client: { readonly ip: string; readonly port: number };
  /** Asks only how the other node would answer; carries nothing. */
  readonly isQuestion?: true;
}

/** Callbacks of a remote dial; exactly one of them is called, unless the dial is cancelled. */
export interface RemoteUser {
  /**
   * Called when the other node has connected to its target. `lost` returns why the session below the stream ended, once
   * it has. `agree` reports to the other end of an aborted flow how many bytes this end received, and resolves to the
   * other end's count, or to undefined when none arrives in time.
   */
  opened(
    stream: Http2Stream,
    lost: () => OverlayReason | undefined,
    agree: (taken: number) => Promise<number | undefined>,
  ): void;
  failed(reason: OverlayReason): void;
}

/** Connects this node to services of other nodes, and other nodes to the services here. */
export interface Remote {
  /** Opens a flow to another node; `user` is called later. */
  dial(request: RemoteRequest, user: RemoteUser): Dial;
  /** Rate limits over all tunnels. */
  readonly tunnels: TwoWayLimiters;
  /** Number of flows that other nodes opened to services here. */
  readonly activeFlows: number;
  /** Ends the flows from other nodes to a service. */
  dropService(name: string): void;
  /** Ends flows idle for too long; `now` is monotonic, in milliseconds. */
  sweep(now: number): void;
}
