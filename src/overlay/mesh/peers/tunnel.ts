import type { ClientHttp2Session, ClientHttp2Stream, OutgoingHttpHeaders } from "node:http2";
import type { PeerSessionState } from "../../../protocol/overlay/mesh.ts";
import type { OverlayReason } from "../../../protocol/overlay/overlay.ts";
import type { PathId } from "../paths/peer-dialer.ts";
import { resetStream } from "../transport/reset.ts";
import { codeOf } from "../transport/wire.ts";

/** A session with a peer, just made. */
export interface Connected {
  readonly session: ClientHttp2Session;
  readonly pathId: PathId;
  /** What it runs on, where that is its own. */
  readonly socket?: { readonly bytesRead: number; readonly bytesWritten: number };
}

/** A session towards a peer and the streams on it. It ends once, and then every stream on it has the same reason. */
export class Tunnel {
  readonly peer: string;
  readonly session: ClientHttp2Session;
  readonly pathId: PathId;
  readonly since: number;
  readonly maxStreams: number;
  /** How many streams it has had. */
  total = 0;
  /** Monotonic milliseconds since when nothing ran, and how to take back the look at it; of whoever closes idle ones. */
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

  /** Streams that run, or are about to. */
  get active(): number {
    return this.#streams.size + this.#reserved;
  }

  /** Whether it can take another stream. */
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

  /** Whether its end ended streams. */
  get wasCut(): boolean {
    return this.#wasCut;
  }

  /** Keeps room for a stream that is opened, or given up, soon. */
  reserve(): void {
    this.#reserved += 1;
  }

  giveUp(): void {
    this.#reserved -= 1;
    if (this.active === 0) this.#onFree(this);
  }

  /** Opens a stream in the room reserved for it; undefined when the session takes none any more. */
  open(headers: OutgoingHttpHeaders, options: { readonly endStream: boolean }): ClientHttp2Stream | undefined {
    if (!this.isAlive) {
      this.giveUp();
      return undefined;
    }
    let stream: ClientHttp2Stream;
    try {
      stream = this.session.request(headers, options);
    } catch {
      // The session noticed its end before it could say so.
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

  /** Takes no new streams; what runs goes on. */
  retire(): void {
    this.#isRetired = true;
    if (this.active === 0) this.#onFree(this);
  }

  /** Ends every stream for this reason. The session itself is its maker's to close. */
  end(reason: OverlayReason): void {
    if (this.#lost !== undefined) return;
    this.#lost = reason;
    if (this.active > 0) this.#wasCut = true;
    for (const stream of this.#streams) resetStream(stream, codeOf(reason));
  }
}
