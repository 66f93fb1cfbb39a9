import type { ClientHttp2Session, ClientHttp2Stream, OutgoingHttpHeaders } from "node:http2";
import type { Clock } from "../../../host/clock.ts";
import type { PeerSessionState } from "../../../protocol/overlay/mesh.ts";
import type { OverlayReason } from "../../../protocol/overlay/overlay.ts";
import type { PathId } from "../paths/peer-dialer.ts";
import { MAX_STREAMS } from "../transport/http2.ts";
import type { PooledSession } from "../transport/session-pool.ts";
import { codeOf, resetStream } from "../../flow/stream-reset.ts";

/** A newly opened session with a peer. */
export interface Connected {
  readonly session: ClientHttp2Session;
  readonly pathId: PathId;
  /** Its socket, if it is not shared. */
  readonly socket?: { readonly bytesRead: number; readonly bytesWritten: number };
}

const CHECK_MS = 5000;
/** Consecutive checks without received bytes, despite pings, after which the session ends. */
const MAX_SILENT = 3;
/** Time for resets to reach the peer before the session closes, in milliseconds. */
const RESET_GRACE_MS = 1000;

/** A session to a peer and its streams. When it ends, all its streams end with the same reason. */
export class Tunnel implements PooledSession {
  readonly peer: string;
  readonly session: ClientHttp2Session;
  readonly pathId: PathId;
  readonly since: number;
  readonly maxStreams: number;
  /** Total number of streams. */
  total = 0;
  onIdle: (isIdle: boolean) => void = () => undefined;
  readonly closing: Promise<void>;
  readonly #clock: Clock;
  readonly #socket: Connected["socket"];
  readonly #streams = new Set<ClientHttp2Stream>();
  #close = (): void => undefined;
  #reserved = 0;
  #isRetired = false;
  #wasCut = false;
  #lost: OverlayReason | undefined;

  constructor(peer: string, { session, pathId, socket }: Connected, clock: Clock) {
    this.peer = peer;
    this.session = session;
    this.pathId = pathId;
    this.#socket = socket;
    this.#clock = clock;
    this.since = clock.now();
    this.maxStreams = Math.min(MAX_STREAMS, session.remoteSettings.maxConcurrentStreams ?? MAX_STREAMS);
    this.closing = new Promise((resolve) => {
      this.#close = resolve;
    });
    session.on("goaway", () => this.retire()).once("close", () => this.end("tunnel-lost"));
    if (session.destroyed) this.end("tunnel-lost");
    else if (socket !== undefined) this.#watch(socket);
  }

  get load(): number {
    return this.#streams.size + this.#reserved;
  }

  /** Reports whether it accepts another stream. */
  get isFree(): boolean {
    return this.isOpen && this.load < this.maxStreams;
  }

  get isOpen(): boolean {
    return !this.#isRetired && this.#lost === undefined && !this.session.closed && !this.session.destroyed;
  }

  /** Reason why it ended; undefined while it is open. */
  get lost(): OverlayReason | undefined {
    return this.#lost ?? (this.session.destroyed ? "tunnel-lost" : undefined);
  }

  /** Reports whether its end aborted streams. */
  get wasCut(): boolean {
    return this.#wasCut;
  }

  /** Reserves room for a stream; `open` or `giveUp` must follow. */
  reserve(): void {
    this.#reserved += 1;
    if (this.load === 1) this.onIdle(false);
  }

  giveUp(): void {
    this.#reserved -= 1;
    this.#freed();
  }

  /** Opens a stream in the reserved room; undefined if the session accepts no more streams. */
  open(headers: OutgoingHttpHeaders, options: { readonly endStream: boolean }): ClientHttp2Stream | undefined {
    if (!this.isOpen) {
      this.giveUp();
      return undefined;
    }
    let stream: ClientHttp2Stream;
    try {
      stream = this.session.request(headers, options);
    } catch {
      // The session ended before it could emit `close`.
      this.giveUp();
      return undefined;
    }
    this.total += 1;
    this.#reserved -= 1;
    this.#streams.add(stream);
    stream.once("close", () => {
      this.#streams.delete(stream);
      if (this.session.destroyed) this.#wasCut = true;
      this.#freed();
    });
    return stream;
  }

  state(): PeerSessionState {
    return {
      peer: this.peer,
      role: "source",
      ...this.pathId,
      since: this.since,
      activeFlows: this.load,
      flows: this.total,
      bytesIn: this.#socket?.bytesRead ?? 0,
      bytesOut: this.#socket?.bytesWritten ?? 0,
    };
  }

  retire(): void {
    this.#isRetired = true;
    this.#close();
    this.#freed();
  }

  /** Ends every stream with this reason. A shared session goes on. */
  end(reason: OverlayReason): void {
    if (this.#lost !== undefined) return;
    this.#lost = reason;
    this.#close();
    if (this.load > 0) this.#wasCut = true;
    for (const stream of this.#streams) resetStream(stream, codeOf(reason));
  }

  /** Ends every stream and its own session, because the peer was removed. */
  destroy(): void {
    if (this.#lost !== undefined) return;
    this.end("removed");
    this.session.close();
    this.#clock.after(RESET_GRACE_MS, () => this.session.destroy());
  }

  /**
   * Pings the other end of a session that is in use and silent, and ends the session when nothing arrives: the hops
   * below may work without passing anything on. A shared session is probed by its hop.
   */
  #watch(socket: { readonly bytesRead: number }): void {
    let seen = -1;
    let silent = 0;
    const check = (): void => {
      // Node cancels the pings of a closing session, and its flows may be silent.
      if (this.session.closed) return;
      const { bytesRead } = socket;
      silent = bytesRead === seen && this.load > 0 ? silent + 1 : 0;
      seen = bytesRead;
      if (silent > MAX_SILENT) return this.session.destroy(new Error("the other node stopped answering"));
      if (silent > 0) this.session.ping(() => undefined);
      cancel = this.#clock.after(CHECK_MS, check);
    };
    let cancel = this.#clock.after(CHECK_MS, check);
    this.session.once("close", () => cancel());
  }

  #freed(): void {
    if (this.load > 0) return;
    if (this.isOpen) this.onIdle(true);
    else if (this.#socket !== undefined) this.session.close();
  }
}
