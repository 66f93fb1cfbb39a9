import type { IncomingHttpHeaders, ServerHttp2Session, ServerHttp2Stream } from "node:http2";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import { SessionError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { MeshPeer, PeerSessionState } from "../../../protocol/overlay/mesh.ts";
import type { OverlayReason } from "../../../protocol/overlay/overlay.ts";
import { serverSession } from "../transport/http2.ts";
import { acceptTls, endTogether, whenProved, type MeshIdentity } from "../transport/tls.ts";
import type { PathId } from "../paths/peer-dialer.ts";

export interface InboundSessionsOptions {
  readonly clock: Clock;
  /** Returns the identity of this node, once it is known. */
  readonly identity: () => MeshIdentity | undefined;
  /** Called with each stream on an authenticated session. */
  readonly onStream: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders, session: InboundSession) => void;
}

/** An authenticated session that a peer opened. */
export interface InboundSession {
  readonly peer: string;
  readonly pathId: PathId;
  /** Returns why it has ended, once it has. */
  readonly lost: () => OverlayReason | undefined;
}

interface Session extends InboundSession {
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
/** Time for resets to reach the peer before the session closes, in milliseconds. */
const RESET_GRACE_MS = 1000;

/** Sessions that peers open with this node through gateways. A peer is identified by its key only. */
export class InboundSessions {
  readonly #options: InboundSessionsOptions;
  readonly #sessions = new Set<Session>();
  readonly #unproven = new Set<Duplex>();
  readonly #closing = new AbortController();
  #byKey: ReadonlyMap<string, string> = new Map();
  #isDraining = false;

  constructor(options: InboundSessionsOptions) {
    this.#options = options;
  }

  /** Applies other peers; ends the sessions of removed ones. */
  apply(peers: readonly MeshPeer[]): void {
    this.#byKey = new Map(peers.map(({ key, uid }) => [key, uid]));
    for (const session of this.#sessions) {
      if (this.#byKey.get(session.key) !== session.peer) this.#end(session, "removed");
    }
  }

  /** Accepts a byte stream, on which the peer must authenticate itself within 10 s. */
  take(stream: Duplex, pathId: PathId): void {
    const own = this.#options.identity();
    if (own === undefined || this.#isDraining || this.#unproven.size >= MAX_UNPROVEN) {
      stream.on("error", () => undefined).destroy();
      return;
    }
    this.#unproven.add(stream);
    void this.#prove(stream, pathId, own).finally(() => this.#unproven.delete(stream));
  }

  /** Stops accepting. The peers end their sessions after the last flow, since only they know what they have not read yet. */
  drain(): void {
    this.#isDraining = true;
    for (const { session } of this.#sessions) session.goaway();
  }

  close(): void {
    this.#isDraining = true;
    this.#closing.abort(new SessionError("removed", "this node has no peers"));
    for (const session of this.#sessions) this.#end(session, "removed");
  }

  states(): PeerSessionState[] {
    return [...this.#sessions].map(({ peer, pathId, since, flows, active, socket }) => ({
      peer,
      role: "destination",
      gateway: pathId.gateway,
      path: pathId.path,
      since,
      activeFlows: active,
      flows,
      bytesIn: socket.bytesRead,
      bytesOut: socket.bytesWritten,
    }));
  }

  async #prove(stream: Duplex, pathId: PathId, own: MeshIdentity): Promise<void> {
    const { clock } = this.#options;
    const deadline = new AbortController();
    const cancel = clock.after(PROOF_MS, () =>
      deadline.abort(new SessionError("peer-unproven", "the peer did not authenticate itself within 10 s")),
    );
    try {
      const signal = AbortSignal.any([deadline.signal, this.#closing.signal]);
      const socket = acceptTls(stream, own, ["holdfast-peer"]);
      endTogether(stream, socket);
      const { key } = await whenProved(socket, signal);
      this.#begin(socket, key, pathId);
    } catch {
      // A peer that did not authenticate itself gets no further information.
      stream.on("error", () => undefined).destroy();
    } finally {
      cancel();
    }
  }

  #begin(socket: TLSSocket, key: string, pathId: PathId): void {
    const peer = this.#byKey.get(key);
    const count = [...this.#sessions].filter((one) => one.peer === peer).length;
    if (peer === undefined || count >= MAX_SESSIONS_PER_PEER || this.#isDraining) {
      socket.destroy();
      return;
    }
    const session = serverSession(socket, { clock: this.#options.clock });
    const since = this.#options.clock.now();
    const lost = (): OverlayReason | undefined => entry.end ?? (session.destroyed ? "tunnel-lost" : undefined);
    const entry: Session = { peer, key, pathId, since, socket, session, flows: 0, active: 0, end: undefined, lost };
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
    this.#options.clock.after(RESET_GRACE_MS, () => entry.session.destroy());
  }
}
