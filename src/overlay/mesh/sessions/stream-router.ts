import type { IncomingHttpHeaders, ServerHttp2Stream } from "node:http2";
import type { Clock } from "../../../host/clock.ts";
import type { OverlayMesh } from "../../../protocol/overlay/mesh.ts";
import type { OverlayReason } from "../../../protocol/overlay/overlay.ts";
import { Uid } from "../../../protocol/values/values.ts";
import { TokenBucket } from "../../../lib/async/token-bucket.ts";
import { refuse, type RelayRequest, type Relay } from "./relay.ts";
import { NO_ERROR, REFUSED_STREAM } from "../../flow/stream-reset.ts";
import type { ReceiveBuffers } from "../transport/receive-buffer.ts";
import type { Inbound, PathId } from "../paths/peer-dialer.ts";

export interface StreamRouterOptions {
  readonly clock: Clock;
  readonly inbound: Inbound;
  readonly relay: Relay;
  readonly receiveBuffers: ReceiveBuffers;
  /** Called with each accepted stream. */
  readonly onStream: () => void;
}

/** Purpose of a stream on a hop session. */
export type Purpose =
  | { readonly is: "request" }
  | { readonly is: "tunnel" }
  | { readonly is: "passage"; readonly dest: string; readonly hops: number }
  | { readonly is: "refused"; readonly reason: OverlayReason };

/** Streams that a peer may open and reset before they are answered, as burst and per second (CVE-2023-44487). */
const RESET_RATE = { perSecond: 20, burst: 200 };

/** Routes every stream of a hop session: requests to this node, tunnels, and streams to relay. */
export class StreamRouter {
  readonly #options: StreamRouterOptions;
  /** Counts by peer; only peers that have reset a stream. */
  readonly #resets = new Map<string, TokenBucket>();
  #self: string | undefined;
  #gateways: ReadonlySet<string> = new Set();

  constructor(options: StreamRouterOptions) {
    this.#options = options;
  }

  apply(mesh: OverlayMesh | undefined): void {
    this.#self = mesh?.self;
    const dialling = (mesh?.peers ?? []).filter(({ isHub, isGateway }) => isHub === true || isGateway === true);
    const dialled = (mesh?.paths ?? []).map(({ gateway }) => gateway);
    this.#gateways = new Set([...dialling.map(({ uid }) => uid), ...dialled]);
    const peers = new Set(mesh?.peers.map(({ uid }) => uid));
    for (const peer of this.#resets.keys()) if (!peers.has(peer)) this.#resets.delete(peer);
  }

  /** Routes a stream on a session authenticated as `from.peer`; false if the peer opens and resets too many. */
  receive(
    stream: ServerHttp2Stream,
    headers: IncomingHttpHeaders,
    from: { readonly peer: string; readonly pathId: PathId },
  ): boolean {
    if ((this.#resets.get(from.peer)?.available(this.#options.clock.elapsed()) ?? 1) < 1) {
      stream.close(REFUSED_STREAM);
      return false;
    }
    this.#options.onStream();
    this.#take(stream, headers, from);
    return true;
  }

  #take(stream: ServerHttp2Stream, headers: IncomingHttpHeaders, from: { peer: string; pathId: PathId }): void {
    stream.once("close", () => this.#closed(from.peer, stream));
    this.#options.receiveBuffers.watch(from.peer, stream);
    const purpose = this.#self === undefined ? REFUSED : purposeOf(headers, this.#self);
    switch (purpose.is) {
      case "refused":
        return refuse(stream, purpose.reason);
      case "request":
        return this.#options.inbound.stream(stream, headers, from);
      case "tunnel":
        stream.respond({ ":status": 200 });
        return this.#options.inbound.tunnel(stream, from.pathId);
      case "passage":
        void this.#options.relay.carry(stream, this.#relayRequest(purpose, headers, from.peer));
    }
  }

  #relayRequest(
    { dest, hops }: { dest: string; hops: number },
    headers: IncomingHttpHeaders,
    from: string,
  ): RelayRequest {
    const said = Uid.safeParse(headers["holdfast-source"]).data;
    // Only a gateway speaks for other nodes; any other node is the source of what it sends.
    const source = this.#gateways.has(from) && said !== undefined ? said : from;
    return { from, source, dest, hops };
  }

  /** Counts streams that were reset before they were opened: they cause work in vain and are limited. */
  #closed(peer: string, stream: ServerHttp2Stream): void {
    if (stream.rstCode === NO_ERROR || stream.sentHeaders?.[":status"] === 200) return;
    const now = this.#options.clock.elapsed();
    const resets = this.#resets.get(peer) ?? new TokenBucket(RESET_RATE, now);
    this.#resets.set(peer, resets);
    resets.takeIfAvailable(1, now);
  }
}

const REFUSED: Purpose = { is: "refused", reason: "peer-absent" };
const REQUESTS: ReadonlySet<string> = new Set(["/echo", "/perf", "/taken"]);

/** Parses the purpose of a stream from the form of its headers. Pure. */
export function purposeOf(headers: IncomingHttpHeaders, self: string): Purpose {
  const path = headers[":path"];
  if (headers[":method"] === "POST" && path !== undefined && REQUESTS.has(path)) return { is: "request" };
  const hops = hopsOf(headers["holdfast-hops"]);
  const dest = Uid.safeParse(/^([^:]*):443$/.exec(headers[":authority"] ?? "")?.[1]).data;
  if (headers[":method"] !== "CONNECT" || dest === undefined || hops === undefined) {
    return { is: "refused", reason: "other" };
  }
  const isFlow = headers["holdfast-service"] !== undefined || headers[":protocol"] !== undefined;
  if (dest === self) return { is: isFlow ? "request" : "tunnel" };
  // A flow must end at the node of the session; a relay would have to read it.
  return isFlow ? { is: "refused", reason: "relay-refused" } : { is: "passage", dest, hops };
}

function hopsOf(value: string | readonly string[] | undefined): number | undefined {
  if (value === undefined) return 0;
  return typeof value === "string" && /^\d{1,2}$/.test(value) ? Number(value) : undefined;
}
