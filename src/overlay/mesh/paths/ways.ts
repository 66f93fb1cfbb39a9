import type { ClientHttp2Session, IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import type { Duplex } from "node:stream";

/** Which gateway and which path to it something goes by; `path` is empty for the built-in one. */
export interface Way {
  readonly gateway: string;
  readonly path: string;
}

export interface WayWish {
  readonly signal: AbortSignal;
  /** Only this one will do. */
  readonly path?: string;
}

/** A wish for a stream that gateways splice. */
export interface SpliceWish extends WayWish {
  /** Only by this gateway, because a static route names it. */
  readonly via?: string;
  /** Gateways that were asked already. */
  readonly tried?: ReadonlySet<string>;
}

/**
 * How other nodes are reached at this moment, over the hop sessions there are.
 * @throws {SessionError} with an `OverlayReason` as its code: `no-path`, `peer-absent`, `relay-refused`, `tunnel-lost`, …
 */
export interface Ways {
  /** An HTTP/2 session with the peer itself, where it is this node's gateway or dials this node; undefined when it is neither. */
  direct(peer: string, wish: WayWish): Promise<{ readonly session: ClientHttp2Session; readonly way: Way }> | undefined;
  /** A stream of bytes to a peer behind a gateway, spliced there and unread; the best way first, and the others after it. */
  splice(peer: string, wish: WayWish): Promise<{ readonly stream: Duplex; readonly way: Way }>;
}

/** What other nodes send. */
export interface Inward {
  /** A spliced stream; who is at its other end is proved only inside it. */
  tunnel(stream: Duplex, way: Way): void;
  /** A stream on a hop session, whose key proved that it comes from `peer`. */
  stream(
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    from: { readonly peer: string; readonly way: Way },
  ): void;
}
