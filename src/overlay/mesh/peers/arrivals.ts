import type { IncomingHttpHeaders, ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import { SessionError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { MeshPeer, PeerSessionState } from "../../../protocol/overlay/mesh.ts";
import type { OverlayReason } from "../../../protocol/overlay/overlay.ts";
import { serverSession } from "../transport/http2.ts";
import { acceptTls, whenProved, type MeshIdentity } from "../transport/tls.ts";
import type { Way } from "../paths/ways.ts";
import { endTogether } from "./carrier.ts";

export interface ArrivalsOptions {
  readonly clock: Clock;
  /** What this node proves itself with, once it has it. */
  readonly identity: () => MeshIdentity | undefined;
  /** A stream on a session, whose peer is proved. */
  readonly onStream: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, session: Arrival) => void;
}

/** A session that a peer has made with this node. */
export interface Arrival {
  readonly peer: string;
  readonly way: Way;
  /** Why it has ended, once it has. */
  readonly lost: () => OverlayReason | undefined;
}

interface Session extends Arrival {
  readonly key: string;
  readonly since: number;
  readonly socket: TLSSocket;
  readonly session: ServerHttp2Session;
  flows: number;
  active: number;
  end: OverlayReason | undefined;
}

const PROOF_MS = 10_000;
const MAX_UNPROVEN = 256;
const MAX_SESSIONS_PER_PEER = 64;
/** What is reset is told so before the session goes. */
const GOODBYE_MS = 1000;

/** Sessions that peers make with this node through gateways. Who is there is what its key proves, and nothing else. */
export class Arrivals {
  readonly #options: ArrivalsOptions;
  readonly #sessions = new Set<Session>();
  readonly #unproven = new Set<Duplex>();
  readonly #closing = new AbortController();
  #byKey: ReadonlyMap<string, string> = new Map();
  #isDraining = false;

  constructor(options: ArrivalsOptions) {
    this.#options = options;
  }

  /** Puts other peers into force; sessions of those that left end. */
  apply(peers: readonly MeshPeer[]): void {
    this.#byKey = new Map(peers.map(({ key, uid }) => [key, uid]));
    for (const session of this.#sessions) {
      if (this.#byKey.get(session.key) !== session.peer) this.#end(session, "removed");
    }
  }

  /** Takes a stream of bytes; it has to prove who it is, soon. */
  take(stream: Duplex, way: Way): void {
    const own = this.#options.identity();
    if (own === undefined || this.#isDraining || this.#unproven.size >= MAX_UNPROVEN) {
      stream.on("error", () => undefined).destroy();
      return;
    }
    this.#unproven.add(stream);
    void this.#prove(stream, way, own).finally(() => this.#unproven.delete(stream));
  }

  /** Takes no more; the peers end their sessions after the last flow, since only they know what they have yet to read. */
  drain(): void {
    this.#isDraining = true;
    for (const { session } of this.#sessions) session.goaway();
  }

  close(): void {
    this.#isDraining = true;
    this.#closing.abort(new SessionError("removed", "this node has no other nodes any more"));
    for (const session of this.#sessions) this.#end(session, "removed");
  }

  states(): PeerSessionState[] {
    return [...this.#sessions].map(({ peer, way, since, flows, active, socket }) => ({
      peer,
      role: "destination",
      gateway: way.gateway,
      path: way.path,
      since,
      activeFlows: active,
      flows,
      bytesIn: socket.bytesRead,
      bytesOut: socket.bytesWritten,
    }));
  }

  async #prove(stream: Duplex, way: Way, own: MeshIdentity): Promise<void> {
    const { clock } = this.#options;
    const deadline = new AbortController();
    const cancel = clock.after(PROOF_MS, () => deadline.abort(new SessionError("peer-unproven", "took too long")));
    try {
      const signal = AbortSignal.any([deadline.signal, this.#closing.signal]);
      const socket = acceptTls(stream, own, ["holdfast-peer"]);
      endTogether(stream, socket);
      const { key } = await whenProved(socket, signal);
      this.#begin(socket, key, way);
    } catch {
      // Whoever could not prove itself is told no more than that.
      stream.on("error", () => undefined).destroy();
    } finally {
      cancel();
    }
  }

  #begin(socket: TLSSocket, key: string, way: Way): void {
    const peer = this.#byKey.get(key);
    const count = [...this.#sessions].filter((one) => one.peer === peer).length;
    if (peer === undefined || count >= MAX_SESSIONS_PER_PEER || this.#isDraining) {
      socket.destroy();
      return;
    }
    const session = serverSession(socket, { clock: this.#options.clock });
    const since = this.#options.clock.now();
    const lost = (): OverlayReason | undefined => entry.end ?? (session.destroyed ? "tunnel-lost" : undefined);
    const entry: Session = { peer, key, way, since, socket, session, flows: 0, active: 0, end: undefined, lost };
    this.#sessions.add(entry);
    session
      .on("stream", (stream, headers) => {
        entry.flows += 1;
        entry.active += 1;
        stream.once("close", () => (entry.active -= 1));
        this.#options.onStream(stream, headers, entry);
      })
      .once("close", () => {
        entry.end ??= "tunnel-lost";
        this.#sessions.delete(entry);
      });
  }

  #end(entry: Session, reason: OverlayReason): void {
    entry.end ??= reason;
    entry.session.close();
    this.#options.clock.after(GOODBYE_MS, () => entry.session.destroy());
  }
}
