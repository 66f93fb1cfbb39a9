import { backoff } from "../../../lib/async/backoff.ts";
import type { ClientHttp2Session } from "node:http2";
import { errnoOf, SessionError, toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { MeshEvent, MeshPeer, OverlayMesh } from "../../../protocol/overlay/mesh.ts";
import { OverlayReason } from "../../../protocol/overlay/overlay.ts";
import type { PeerDialer } from "../paths/peer-dialer.ts";
import { Tunnel, type Connected } from "./tunnel.ts";
import { watchTunnel } from "./watch-tunnel.ts";

export interface TunnelsOptions {
  readonly clock: Clock;
  readonly peerDialer: PeerDialer;
  /** Opens a session with exactly this peer; errors have an `OverlayReason` as their code. */
  readonly connect: (peer: MeshPeer, signal: AbortSignal) => Promise<Connected>;
  readonly onEvent: (event: MeshEvent) => void;
}

const MAX_STREAMS = 256;
/** Enough for 10,000 flows, the usual limit of a connector. */
const MAX_SESSIONS = 40;
const IDLE_MS = 60_000;
const REFUSAL = { firstMs: 100, maxMs: 400 };
/** A session that ends sooner counts as a failed attempt. */
const SHORT_MS = 1000;
/** Time for resets to reach the peer before the session closes, in milliseconds. */
const RESET_GRACE_MS = 1000;

interface Opening {
  readonly ready: Promise<Tunnel>;
  reserved: number;
}

interface Entry {
  readonly peer: MeshPeer;
  readonly abort: AbortController;
  readonly tunnels: Set<Tunnel>;
  readonly openings: Set<Opening>;
  failures: number;
  /** Time until which attempts are refused, and the reason. */
  refusal: { readonly reason: OverlayReason; readonly until: number } | undefined;
  lostAt: number | undefined;
}

/** Sessions to each peer, shared by all flows: opened with the first flow, closed 60 s after the last. */
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
      return await this.#reserveSpliced(entry);
    } catch (error) {
      throw direct ?? error;
    }
  }

  /** Returns all sessions to peers behind gateways. */
  list(): readonly Tunnel[] {
    return [...this.#entries.values()].flatMap(({ tunnels }) => Array.from(tunnels));
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
    let entry = this.#entries.get(peer.uid);
    if (entry === undefined) {
      entry = {
        peer,
        abort: new AbortController(),
        tunnels: new Set(),
        openings: new Set(),
        failures: 0,
        refusal: undefined,
        lostAt: undefined,
      };
      this.#entries.set(peer.uid, entry);
    }
    return entry;
  }

  #reserveSpliced(entry: Entry): Tunnel | Promise<Tunnel> {
    for (const tunnel of entry.tunnels) {
      if (!tunnel.isFree) continue;
      tunnel.reserve();
      return tunnel;
    }
    const opening = [...entry.openings].find(({ reserved }) => reserved < MAX_STREAMS) ?? this.#begin(entry);
    opening.reserved += 1;
    return opening.ready;
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
    if (tunnel.active >= tunnel.maxStreams)
      return new SessionError("too-many-flows", `${peer.uid} accepts no more flows`);
    tunnel.reserve();
    return tunnel;
  }

  #adopt(uid: string, connected: Connected): Tunnel {
    const all = this.#directOf.get(uid) ?? new Set();
    const tunnel = this.#tunnel(uid, connected, () => undefined);
    this.#direct.set(connected.session, tunnel);
    this.#directOf.set(uid, all.add(tunnel));
    connected.session.once("close", () => all.delete(tunnel));
    return tunnel;
  }

  #tunnel(uid: string, connected: Connected, onFree: (tunnel: Tunnel) => void): Tunnel {
    const offered = connected.session.remoteSettings.maxConcurrentStreams ?? MAX_STREAMS;
    const maxStreams = Math.min(MAX_STREAMS, offered);
    return new Tunnel(uid, connected, { since: this.#options.clock.now(), maxStreams, onFree });
  }

  #begin(entry: Entry): Opening {
    const { refusal, peer, tunnels, openings } = entry;
    if (refusal !== undefined && this.#options.clock.elapsed() < refusal.until) {
      throw new SessionError(refusal.reason, `${peer.uid} is unreachable; the next attempt follows within 400 ms`);
    }
    if (tunnels.size + openings.size >= MAX_SESSIONS) {
      throw new SessionError("too-many-flows", `too many sessions with ${peer.uid}`);
    }
    const opening: Opening = {
      reserved: 0,
      ready: this.#options.connect(peer, entry.abort.signal).then(
        (connected) => this.#connected(entry, opening, connected),
        (error: unknown) => this.#failed(entry, opening, error),
      ),
    };
    openings.add(opening);
    return opening;
  }

  #connected(entry: Entry, opening: Opening, connected: Connected): Tunnel {
    const { clock } = this.#options;
    const { session } = connected;
    entry.openings.delete(opening);
    if (entry.abort.signal.aborted) {
      session.destroy();
      throw new SessionError("removed", `${entry.peer.uid} was removed from this node's peers`);
    }
    const tunnel = this.#tunnel(entry.peer.uid, connected, (free) => this.#onFree(entry, free));
    entry.tunnels.add(tunnel);
    entry.refusal = undefined;
    for (let i = 0; i < opening.reserved; i += 1) tunnel.reserve();
    watchTunnel(clock, connected, () => tunnel.active > 0);
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

  #failed(entry: Entry, opening: Opening, error: unknown): never {
    entry.openings.delete(opening);
    const reason = reasonOf(error);
    this.#refuseFor(entry, reason);
    throw new SessionError(reason, toError(error).message, { cause: error });
  }

  /** Makes new flows fail immediately for a short time, so that they do not overload an unreachable peer. */
  #refuseFor(entry: Entry, reason: OverlayReason): void {
    entry.failures += 1;
    entry.refusal = { reason, until: this.#options.clock.elapsed() + backoff(entry.failures, REFUSAL) };
  }

  #onFree(entry: Entry, tunnel: Tunnel): void {
    if (!tunnel.isAlive) {
      tunnel.session.close();
      return;
    }
    tunnel.idleSince = this.#options.clock.elapsed();
    this.#closeLaterIfIdle(entry, tunnel, IDLE_MS);
  }

  #closeLaterIfIdle(entry: Entry, tunnel: Tunnel, ms: number): void {
    tunnel.cancelIdleCheck ??= this.#options.clock.after(ms, () => {
      tunnel.cancelIdleCheck = undefined;
      if (tunnel.active > 0 || tunnel.lost !== undefined) return;
      const left = tunnel.idleSince + IDLE_MS - this.#options.clock.elapsed();
      if (left > 0) return this.#closeLaterIfIdle(entry, tunnel, left);
      tunnel.retire();
      entry.tunnels.delete(tunnel);
    });
  }

  #remove(uid: string, entry: Entry): void {
    this.#entries.delete(uid);
    entry.abort.abort(new SessionError("removed", `${uid} was removed from this node's peers`));
    for (const tunnel of entry.tunnels) {
      tunnel.end("removed");
      tunnel.session.close();
      this.#options.clock.after(RESET_GRACE_MS, () => tunnel.session.destroy());
    }
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

/** Returns the reason in the code of an error. */
export function reasonOf(error: unknown): OverlayReason {
  const said = OverlayReason.safeParse(errnoOf(error));
  return said.success ? said.data : "other";
}
