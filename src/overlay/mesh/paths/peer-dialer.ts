import type { ClientHttp2Session, IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import type { Duplex } from "node:stream";

/** Which gateway and which path to it something goes by; `path` is empty for the built-in one. */
export interface PathId {
  readonly gateway: string;
  readonly path: string;
}

export interface PeerDialOptions {
  readonly signal: AbortSignal;
  /** Only this one will do. */
  readonly path?: string;
}

/** A wish for a stream that gateways splice. */
export interface SpliceOptions extends PeerDialOptions {
  /** Only by this gateway, because a static route names it. */
  readonly via?: string;
  /** Gateways that were asked already. */
  readonly tried?: ReadonlySet<string>;
}

/**
 * How other nodes are reached at this moment, over the hop sessions there are.
 * @throws {SessionError} with an `OverlayReason` as its code: `no-path`, `peer-absent`, `relay-refused`, `tunnel-lost`, …
 */
export interface PeerDialer {
  /** An HTTP/2 session with the peer itself, where it is this node's gateway or dials this node; undefined when it is neither. */
  direct(
    peer: string,
    options: PeerDialOptions,
  ): Promise<{ readonly session: ClientHttp2Session; readonly pathId: PathId }> | undefined;
  /** A stream of bytes to a peer behind a gateway, spliced there and unread; the best way first, and the others after it. */
  splice(peer: string, options: PeerDialOptions): Promise<{ readonly stream: Duplex; readonly pathId: PathId }>;
}

/** What other nodes send. */
export interface Inbound {
  /** A spliced stream; who is at its other end is proved only inside it. */
  tunnel(stream: Duplex, pathId: PathId): void;
  /** A stream on a hop session, whose key proved that it comes from `peer`. */
  stream(
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    from: { readonly peer: string; readonly pathId: PathId },
  ): void;
}
