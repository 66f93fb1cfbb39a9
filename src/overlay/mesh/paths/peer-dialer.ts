import type { ClientHttp2Session, IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import type { Duplex } from "node:stream";

/** A gateway and one of the paths to it; `path` is empty for the built-in one. */
export interface PathId {
  readonly gateway: string;
  readonly path: string;
}

export interface PeerDialOptions {
  readonly signal: AbortSignal;
  /** Use this path only. */
  readonly path?: string;
}

/** Options of a stream that gateways splice. */
export interface SpliceOptions extends PeerDialOptions {
  /** Use only this gateway, because a static route names it. */
  readonly via?: string;
  /** Gateways that were already tried. */
  readonly tried?: ReadonlySet<string>;
}

/** Options of a relayed stream. */
export interface RelayedSpliceOptions extends SpliceOptions {
  /** Number of relays so far. */
  readonly hops: number;
  /** Node that opened the stream. */
  readonly source: string;
  /** Neighbour that sent the stream; it is not sent back there. */
  readonly except: string;
}

/**
 * Opens sessions and streams to other nodes over the current hop sessions.
 * @throws {SessionError} with an `OverlayReason` as its code: `no-path`, `peer-absent`, `relay-refused`, `tunnel-lost`,
 * …
 */
export interface PeerDialer {
  /** Returns an HTTP/2 session with the peer itself if it is this node's gateway or has dialled this node; otherwise undefined. */
  direct(
    peer: string,
    options: PeerDialOptions,
  ): Promise<{ readonly session: ClientHttp2Session; readonly pathId: PathId }> | undefined;
  /** Opens a byte stream to a peer behind a gateway, which splices it without reading it. Tries the best path first, then the others. */
  splice(peer: string, options: PeerDialOptions): Promise<{ readonly stream: Duplex; readonly pathId: PathId }>;
}

/** Receives the streams of other nodes. */
export interface Inbound {
  /** Receives a spliced stream; the peer authenticates itself inside it. */
  tunnel(stream: Duplex, pathId: PathId): void;
  /** Receives a stream on a hop session that is authenticated as `peer`. */
  stream(
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    from: { readonly peer: string; readonly pathId: PathId },
  ): void;
}
