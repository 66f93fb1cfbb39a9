import type { ClientHttp2Session, ClientHttp2Stream, OutgoingHttpHeaders } from "node:http2";
import type { PeerSessionState } from "../../../protocol/overlay/mesh.ts";
import type { OverlayReason } from "../../../protocol/overlay/overlay.ts";
import type { PathId } from "../paths/peer-dialer.ts";
import { codeOf, resetStream } from "../../flow/stream-reset.ts";

/** A newly opened session with a peer. */
export interface Connected {
  readonly session: ClientHttp2Session;
  readonly pathId: PathId;
  /** Its socket, if it is not shared. */
  readonly socket?: { readonly bytesRead: number; readonly bytesWritten: number };
}

/** A session to a peer and its streams. When it ends, all its streams end with the same reason. */
export class Tunnel {
  readonly peer: string;
  readonly session: ClientHttp2Session;
  readonly pathId: PathId;
  readonly since: number;
  readonly maxStreams: number;
  /** Total number of streams. */
  total = 0;
  /** Monotonic milliseconds since it is idle, and the pending check of that; used by the owner to close idle sessions. */
  idleSince = 0;
  cancelIdleCheck: (() => void) | undefined;
  readonly #socket: Connected["socket"];
  readonly #streams = new Set<ClientHttp2Stream>();
  readonly #onFree: (tunnel: Tunnel) => void;
  #reserved = 0;
  #isRetired = false;
  #wasCut = false;
  #lost: OverlayReason | undefined;

  constructor(
    peer: string,
    { session, pathId, socket }: Connected,
    { since, maxStreams, onFree }: { since: number; maxStreams: number; onFree: (tunnel: Tunnel) => void },
  ) {
    this.peer = peer;
    this.session = session;
    this.pathId = pathId;
    this.#socket = socket;
    this.since = since;
    this.maxStreams = maxStreams;
    this.#onFree = onFree;
    session.on("goaway", () => this.retire()).once("close", () => this.end("tunnel-lost"));
    if (session.destroyed) this.end("tunnel-lost");
  }

  /** Number of open and reserved streams. */
  get active(): number {
    return this.#streams.size + this.#reserved;
  }

  /** Reports whether it accepts another stream. */
  get isFree(): boolean {
    return this.isAlive && this.active < this.maxStreams;
  }

  get isAlive(): boolean {
    return !this.#isRetired && this.#lost === undefined && !this.session.closed && !this.session.destroyed;
  }

  /** Why it has ended, once it has. */
  get lost(): OverlayReason | undefined {
    return this.#lost ?? (this.session.destroyed ? "tunnel-lost" : undefined);
  }

  /** Reports whether its end aborted streams. */
  get wasCut(): boolean {
    return this.#wasCut;
  }

  /** Reserves room for a stream that is opened or released soon. */
  reserve(): void {
    this.#reserved += 1;
  }

  giveUp(): void {
    this.#reserved -= 1;
    if (this.active === 0) this.#onFree(this);
  }

  /** Opens a stream in the reserved room; undefined if the session accepts no more streams. */
  open(headers: OutgoingHttpHeaders, options: { readonly endStream: boolean }): ClientHttp2Stream | undefined {
    if (!this.isAlive) {
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
      if (this.active === 0) this.#onFree(this);
    });
    return stream;
  }

  state(): PeerSessionState {
    return {
      peer: this.peer,
      role: "source",
      ...this.pathId,
      since: this.since,
      activeFlows: this.active,
      flows: this.total,
      bytesIn: this.#socket?.bytesRead ?? 0,
      bytesOut: this.#socket?.bytesWritten ?? 0,
    };
  }

  /** Accepts no new streams; running streams continue. */
  retire(): void {
    this.#isRetired = true;
    if (this.active === 0) this.#onFree(this);
  }

  /** Ends every stream with this reason. The owner of the session closes it. */
  end(reason: OverlayReason): void {
    if (this.#lost !== undefined) return;
    this.#lost = reason;
    if (this.active > 0) this.#wasCut = true;
    for (const stream of this.#streams) resetStream(stream, codeOf(reason));
  }
}
