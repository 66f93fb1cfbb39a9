import type { IncomingHttpHeaders, ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import type { TLSSocket } from "node:tls";
import type { Clock } from "../../../host/clock.ts";
import type { ClientState, MeshEvent } from "../../../protocol/overlay/mesh.ts";
import { clientSession, MAX_STREAMS, pauseReading, serverSession } from "../transport/http2.ts";
import { countRequests, Hop, type HopUser, type OutboundHop } from "../paths/hop.ts";
import type { MeshProtocol } from "../transport/tls.ts";
import { defined } from "../../../lib/defined.ts";

export interface ClientsOptions {
  readonly clock: Clock;
  /** Called with a stream on a client's session; false if the client opens too many in vain. */
  readonly onStream: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, peer: string) => boolean;
  /** Called when a client connected, disconnected, or was measured for the first time. */
  readonly onChanged: () => void;
  readonly onEvent: (event: MeshEvent) => void;
}

interface Client {
  readonly peer: string;
  readonly key: string;
  /** Newest last. */
  readonly hops: Map<Hop, OutboundHop | undefined>;
  since: number;
  reason: string | undefined;
  remote: Hop["remote"] | undefined;
  rttMs: number | undefined;
  past: { bytesIn: number; bytesOut: number };
  /** Monotonic time of the disconnect, if disconnected. */
  lostAt: number | undefined;
}

/**
 * Maximum number of sessions per node: two paths under full load. A node that dials more has lost older sessions
 * without noticing.
 */
export const MAX_SESSIONS = 96;
const KEPT_MS = 24 * 3_600_000;
const MAX_KEPT = 10_000;
const MAX_CAUSE = 512;
/** Pause after excess streams, in milliseconds; shorter than the permitted silence of a session. */
const PAUSE_MS = 500;
const DRAINING = "this overlay is draining";

/** Tracks the nodes that dial this node's gateway and their sessions. */
export class Clients {
  readonly #options: ClientsOptions;
  readonly #clients = new Map<string, Client>();
  #isDraining = false;

  constructor(options: ClientsOptions) {
    this.#options = options;
  }

  /** Creates a hop session on a socket that has proved the key of `peer`. */
  add(peer: string, key: string, protocol: MeshProtocol, socket: TLSSocket): void {
    const client = this.#clientOf(peer, key);
    const [oldest] = client.hops.keys();
    if (client.hops.size >= MAX_SESSIONS) oldest?.destroy("replaced by a newer session");
    if (protocol === "h2") this.#begin(client, this.#serve(socket, client), undefined);
    else {
      const hop = this.#hop(socket, client, (proved) => clientSession(proved, peer, this.#options));
      countRequests(hop);
      this.#begin(client, hop, hop);
    }
  }

  /** Returns the sessions on which streams to `peer` can be opened, the best first. */
  inbound(peer: string): readonly OutboundHop[] {
    const hops = [...(this.#clients.get(peer)?.hops.values() ?? [])].filter((hop) => hop !== undefined);
    return hops
      .filter((hop) => hop.isOpen && hop.streams < MAX_STREAMS)
      .toReversed()
      .toSorted(byQuality);
  }

  /** Ends the sessions of all nodes not listed with their current key. */
  keepOnly(keys: ReadonlyMap<string, string>, cause: string): void {
    for (const { peer, key, hops } of this.#clients.values()) {
      if (keys.get(peer) !== key) for (const hop of hops.keys()) hop.destroy(cause);
    }
  }

  /** Asks all nodes to use another gateway; running streams continue. */
  drain(): void {
    this.#isDraining = true;
    for (const { hops } of this.#clients.values()) for (const hop of hops.keys()) hop.retire(DRAINING);
  }

  states(): ClientState[] {
    this.#forgetOld();
    return [...this.#clients.values()].map((client) => stateOf(client));
  }

  #serve(socket: TLSSocket, client: Client): Hop<ServerHttp2Session> {
    const hop = this.#hop(socket, client, (proved) => serverSession(proved, this.#options));
    let pausedUntil = 0;
    hop.session.on("stream", (stream, headers) => {
      hop.hold(stream);
      if (this.#options.onStream(stream, headers, client.peer)) return;
      const now = this.#options.clock.elapsed();
      if (now < pausedUntil) return;
      // Refusing costs work too, so reading from the sender pauses.
      pausedUntil = now + PAUSE_MS;
      pauseReading(socket, this.#options.clock, PAUSE_MS);
    });
    return hop;
  }

  #hop<S extends Hop["session"]>(socket: TLSSocket, client: Client, make: (socket: TLSSocket) => S): Hop<S> {
    const user: HopUser = {
      isProbed: true,
      sent: () => undefined,
      answered: (_sentAt, rttMs) => {
        const isFirst = client.rttMs === undefined;
        client.rttMs = rttMs;
        if (isFirst) this.#options.onChanged();
      },
    };
    return new Hop(this.#options.clock, socket, make, user);
  }

  #begin(client: Client, hop: Hop, inbound: OutboundHop | undefined): void {
    client.hops.set(hop, inbound);
    client.remote = hop.remote;
    // `ended` reports the failure.
    hop.prove().catch(() => undefined);
    void hop.ended.then(({ cause, since }) => this.#ended(client, hop, cause, since));
    if (client.hops.size === 1) this.#came(client);
    if (this.#isDraining) hop.retire(DRAINING);
    this.#options.onChanged();
  }

  #came(client: Client): void {
    const { clock, onEvent } = this.#options;
    const cause = client.reason;
    client.since = clock.now();
    client.reason = undefined;
    if (client.lostAt === undefined) return;
    const durationMs = Math.max(0, clock.elapsed() - client.lostAt);
    client.lostAt = undefined;
    onEvent({
      kind: "client-back",
      at: clock.now(),
      peer: client.peer,
      cause: cause ?? "it was disconnected",
      durationMs,
    });
  }

  #ended(client: Client, hop: Hop, cause: string, since: number): void {
    const { clock, onEvent, onChanged } = this.#options;
    client.hops.delete(hop);
    client.past.bytesIn += hop.moved.bytesIn;
    client.past.bytesOut += hop.moved.bytesOut;
    if (client.hops.size === 0) {
      client.since = clock.now();
      client.reason = cause.slice(0, MAX_CAUSE);
      client.lostAt = since;
      client.rttMs = undefined;
      if (this.#isDraining) return;
      onEvent({ kind: "client-lost", at: clock.now(), peer: client.peer, cause: client.reason });
    }
    onChanged();
  }

  #clientOf(peer: string, key: string): Client {
    const known = this.#clients.get(peer);
    if (known?.key === key) return known;
    this.#forgetOld();
    const now = this.#options.clock.now();
    const fresh: Client = {
      peer,
      key,
      hops: new Map(),
      since: now,
      reason: undefined,
      remote: undefined,
      rttMs: undefined,
      past: { bytesIn: 0, bytesOut: 0 },
      lostAt: known?.lostAt,
    };
    this.#clients.set(peer, fresh);
    return fresh;
  }

  #forgetOld(): void {
    const before = this.#options.clock.now() - KEPT_MS;
    let tooMany = this.#clients.size - MAX_KEPT;
    for (const [peer, { hops, since }] of this.#clients) {
      if (hops.size > 0 || (since >= before && tooMany < 0)) continue;
      this.#clients.delete(peer);
      tooMany -= 1;
    }
  }
}

/** Prefers healthy sessions, then low loss and round trip; among equals the newest. */
function byQuality(a: OutboundHop, b: OutboundHop): number {
  return (
    Number(a.isInTrouble) - Number(b.isInTrouble) ||
    a.loss - b.loss ||
    (a.rttMs ?? Infinity) - (b.rttMs ?? Infinity) ||
    0
  );
}

function stateOf({ peer, hops, since, reason, remote, rttMs, past }: Client): ClientState {
  let { bytesIn, bytesOut } = past;
  for (const { moved } of hops.keys()) {
    bytesIn += moved.bytesIn;
    bytesOut += moved.bytesOut;
  }
  return {
    peer,
    state: hops.size > 0 ? "up" : "down",
    since,
    ...defined({ reason }),
    sessions: hops.size,
    ...defined({ remote, rttMs }),
    bytesIn,
    bytesOut,
  };
}
