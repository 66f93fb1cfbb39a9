import { backoff } from "../../../lib/async/backoff.ts";
import type { ClientHttp2Session } from "node:http2";
import { SessionError, toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { MeshEvent, MeshPeer, OverlayMesh } from "../../../protocol/overlay/mesh.ts";
import type { OverlayReason } from "../../../protocol/overlay/overlay.ts";
import { reasonOf } from "../paths/failures.ts";
import type { PeerDialer } from "../paths/peer-dialer.ts";
import { MAX_SESSIONS, SessionPool } from "../transport/session-pool.ts";
import { Tunnel, type Connected } from "./tunnel.ts";

export interface TunnelsOptions {
  readonly clock: Clock;
  readonly peerDialer: PeerDialer;
  /** Opens a session with exactly this peer; errors have an `OverlayReason` as their code. */
  readonly connect: (peer: MeshPeer, signal: AbortSignal) => Promise<Connected>;
  readonly onEvent: (event: MeshEvent) => void;
}

const REFUSAL = { firstMs: 100, maxMs: 400 };
/** A session that ends sooner counts as a failed attempt. */
const SHORT_MS = 1000;

interface Entry {
  readonly peer: MeshPeer;
  readonly abort: AbortController;
  readonly pool: SessionPool<Tunnel>;
  /** All open sessions, including retired ones. */
  readonly tunnels: Set<Tunnel>;
  failures: number;
  /** Time until which attempts are refused, and the reason. */
  refusal: { readonly reason: OverlayReason; readonly until: number } | undefined;
  lostAt: number | undefined;
}

/** Sessions to each peer, shared by all flows to it. */
export class Tunnels {
  readonly #options: TunnelsOptions;
  readonly #entries = new Map<string, Entry>();
  readonly #direct = new WeakMap<ClientHttp2Session, Tunnel>();
  /** Tunnels on sessions that others close. */
  readonly #directOf = new Map<string, Set<Tunnel>>();
  #peers: ReadonlyMap<string, MeshPeer> = new Map();
  #paths: ReadonlySet<string> = new Set();

  constructor(options: TunnelsOptions) {
    this.#options = options;
  }

  /** Applies other peers; ends the flows to removed ones immediately. */
  apply({ peers, paths }: Pick<OverlayMesh, "peers" | "paths">): void {
    this.#paths = new Set(paths.map(({ gateway, id }) => `${gateway} ${id}`));
    this.#peers = new Map(peers.map((peer) => [peer.uid, peer]));
    for (const [uid, entry] of this.#entries) {
      if (this.#peers.get(uid)?.key !== entry.peer.key) this.#remove(uid, entry);
    }
    for (const [uid, tunnels] of this.#directOf) {
      if (this.#peers.has(uid)) continue;
      for (const tunnel of tunnels) tunnel.end("removed");
      this.#directOf.delete(uid);
    }
  }

  /** Reports whether the peer exists and, if a path is named, whether there is such a path to it. */
  knows(uid: string, path?: string): boolean {
    return this.#peers.has(uid) && (path === undefined || this.#paths.has(`${uid} ${path}`));
  }

  /**
   * Returns a tunnel to a peer with a reserved stream; over one path only if it is named, which only gateways have.
   * @throws {SessionError} with an `OverlayReason` as its code.
   */
  async reserve(uid: string, path?: string): Promise<Tunnel> {
    const peer = this.#peers.get(uid);
    if (peer === undefined) throw new SessionError("peer-absent", `this node does not know ${uid}`);
    const entry = this.#entryOf(peer);
    const direct = await this.#reserveDirect(entry, path);
    if (direct instanceof Tunnel) return direct;
    // If the path to the peer's own gateway is down, another gateway may reach the peer.
    if (direct !== undefined && (path !== undefined || reasonOf(direct) === "too-many-flows")) throw direct;
    if (path !== undefined) throw new SessionError("no-path", `the path to ${uid} is not up`);
    // The peer may have been removed in the meantime.
    if (entry.abort.signal.aborted) throw new SessionError("removed", `${uid} was removed from this node's peers`);
    try {
      return await entry.pool.take();
    } catch (error) {
      throw direct ?? error;
    }
  }

  /** Returns the sessions to peers behind gateways that accept or carry flows. */
  list(): readonly Tunnel[] {
    const all = [...this.#entries.values()].flatMap(({ tunnels }) => Array.from(tunnels));
    return all.filter(({ isOpen, load }) => isOpen || load > 0);
  }

  /** Clears the backoff of unreachable peers, so that the next flow is tried immediately. */
  retryNow(): void {
    for (const entry of this.#entries.values()) {
      entry.refusal = undefined;
      entry.failures = 0;
    }
  }

  close(): void {
    this.#peers = new Map();
    for (const [uid, entry] of this.#entries) this.#remove(uid, entry);
  }

  #entryOf(peer: MeshPeer): Entry {
    const known = this.#entries.get(peer.uid);
    if (known !== undefined) return known;
    const added: Entry = {
      peer,
      abort: new AbortController(),
      pool: new SessionPool({
        clock: this.#options.clock,
        open: (signal) => this.#open(added, signal),
        maxDials: MAX_SESSIONS,
        to: peer.uid,
      }),
      tunnels: new Set(),
      failures: 0,
      refusal: undefined,
      lostAt: undefined,
    };
    this.#entries.set(peer.uid, added);
    return added;
  }

  /** Returns undefined if the peer is not reached directly; an error if it should be, but is not. */
  async #reserveDirect(
    { peer, abort: { signal } }: Entry,
    path: string | undefined,
  ): Promise<Tunnel | Error | undefined> {
    const asked = this.#options.peerDialer.direct(peer.uid, path === undefined ? { signal } : { signal, path });
    if (asked === undefined) return undefined;
    let connected: Connected;
    try {
      connected = await asked;
    } catch (error) {
      return toError(error);
    }
    const tunnel = this.#direct.get(connected.session) ?? this.#adopt(peer.uid, connected);
    if (tunnel.load >= tunnel.maxStreams)
      return new SessionError("too-many-flows", `${peer.uid} accepts no more flows`);
    tunnel.reserve();
    return tunnel;
  }

  #adopt(uid: string, connected: Connected): Tunnel {
    const all = this.#directOf.get(uid) ?? new Set();
    const tunnel = new Tunnel(uid, connected, this.#options.clock);
    this.#direct.set(connected.session, tunnel);
    this.#directOf.set(uid, all.add(tunnel));
    connected.session.once("close", () => all.delete(tunnel));
    return tunnel;
  }

  async #open(entry: Entry, signal: AbortSignal): Promise<Tunnel> {
    const { refusal, peer, tunnels } = entry;
    // The pool does not count retired sessions, and a peer can retire each after one flow.
    if (tunnels.size >= MAX_SESSIONS) {
      throw new SessionError(
        "too-many-flows",
        `${tunnels.size} sessions to ${peer.uid} are open, some of them retired`,
      );
    }
    if (refusal !== undefined && this.#options.clock.elapsed() < refusal.until) {
      throw new SessionError(refusal.reason, `${peer.uid} is unreachable; the next attempt follows within 400 ms`);
    }
    let connected: Connected;
    try {
      connected = await this.#options.connect(peer, signal);
    } catch (error) {
      const reason = reasonOf(error);
      this.#refuseFor(entry, reason);
      throw new SessionError(reason, toError(error).message, { cause: error });
    }
    if (signal.aborted) {
      connected.session.destroy();
      throw toError(signal.reason);
    }
    return this.#connected(entry, connected);
  }

  #connected(entry: Entry, connected: Connected): Tunnel {
    const { clock } = this.#options;
    const { session } = connected;
    const tunnel = new Tunnel(entry.peer.uid, connected, clock);
    entry.tunnels.add(tunnel);
    entry.refusal = undefined;
    const madeAt = clock.elapsed();
    let cause = "the session ended";
    session.on("error", (error) => (cause = error.message));
    session.once("close", () => {
      entry.tunnels.delete(tunnel);
      if (clock.elapsed() - madeAt >= SHORT_MS) entry.failures = 0;
      else if (tunnel.wasCut) this.#refuseFor(entry, "tunnel-lost");
      if (tunnel.wasCut && !entry.abort.signal.aborted) this.#reportLost(entry, tunnel, cause);
    });
    this.#reportBack(entry, tunnel);
    return tunnel;
  }

  /** Makes new flows fail immediately for a short time, so that they do not overload an unreachable peer. */
  #refuseFor(entry: Entry, reason: OverlayReason): void {
    entry.failures += 1;
    entry.refusal = { reason, until: this.#options.clock.elapsed() + backoff(entry.failures, REFUSAL) };
  }

  #remove(uid: string, entry: Entry): void {
    this.#entries.delete(uid);
    const removed = new SessionError("removed", `${uid} was removed from this node's peers`);
    entry.abort.abort(removed);
    entry.pool.drop(removed);
    for (const tunnel of entry.tunnels) tunnel.destroy();
  }

  #reportLost(entry: Entry, { pathId, peer }: Tunnel, cause: string): void {
    const { clock, onEvent } = this.#options;
    entry.lostAt ??= clock.elapsed();
    onEvent({ kind: "session-lost", at: clock.now(), peer, ...pathId, cause: cause.slice(0, 512) });
  }

  #reportBack(entry: Entry, { pathId, peer }: Tunnel): void {
    const { clock, onEvent } = this.#options;
    if (entry.lostAt === undefined) return;
    const durationMs = clock.elapsed() - entry.lostAt;
    entry.lostAt = undefined;
    onEvent({ kind: "session-back", at: clock.now(), peer, ...pathId, cause: "a new session is up", durationMs });
  }
}
