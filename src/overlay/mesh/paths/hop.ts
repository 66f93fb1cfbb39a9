import { constants, type ClientHttp2Session, type ServerHttp2Session } from "node:http2";
import type { TLSSocket } from "node:tls";
import { SessionError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import { MAX_STREAMS } from "../transport/http2.ts";
import type { PooledSession } from "../transport/session-pool.ts";
import { Prober } from "./prober.ts";

/** Callbacks for the probes of a session; times are of the wall clock. */
export interface HopUser {
  /** The other side dialled and probes the session, too. */
  readonly isProbed?: true;
  sent(at: number): void;
  answered(sentAt: number, rttMs: number): void;
  /** A probe is overdue and no bytes arrived. */
  missed?(): void;
}

/** Reason why a hop session ended, and the monotonic time of the first sign. */
export interface HopEnd {
  readonly cause: string;
  readonly since: number;
}

/** Bytes of a socket since it was opened. */
export interface Moved {
  readonly bytesIn: number;
  readonly bytesOut: number;
}

interface Closes {
  once(event: "close", listener: () => void): unknown;
}

const ANSWERS_TO_PROVE = 3;
/** Time limit of these answers; a peer that sends other data instead would never count as silent. */
const PROVE_MS = 10_000;
/** Time limit of a retired session, which only serves running streams. */
const RETIRED_MS = 600_000;
const KEEP_ALIVE_MS = 5000;

/** A hop session: its socket, its HTTP/2 session, its probes, and the number of its open streams. */
export class Hop<
  Session extends ClientHttp2Session | ServerHttp2Session = ClientHttp2Session | ServerHttp2Session,
> implements PooledSession {
  readonly session: Session;
  readonly maxStreams = MAX_STREAMS;
  readonly remote: { readonly ip: string; readonly port: number };
  readonly local: string | undefined;
  /** Resolves when no new stream may start: it has ended, or the other side is closing. */
  readonly closing: Promise<HopEnd>;
  /** Resolves when it has ended with all its streams. */
  readonly ended: Promise<HopEnd>;
  /** Called when the last stream has closed, and when the first opens. */
  onIdle: (isIdle: boolean) => void = () => undefined;
  readonly #clock: Clock;
  readonly #socket: TLSSocket;
  readonly #prober: Prober;
  #close = (_end: HopEnd): void => undefined;
  #end = (_end: HopEnd): void => undefined;
  #streams = 0;
  #reserved = 0;
  #isOver = false;
  #last: Moved | undefined;

  constructor(clock: Clock, socket: TLSSocket, makeSession: (socket: TLSSocket) => Session, user: HopUser) {
    this.#clock = clock;
    this.#socket = socket;
    this.remote = { ip: socket.remoteAddress ?? "", port: socket.remotePort ?? 0 };
    this.local = socket.localAddress;
    this.closing = new Promise((resolve) => {
      this.#close = resolve;
    });
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
    // Attached before the session takes the socket: its own listener would end the streams without an error.
    socket.on("error", (error) => this.destroy(`connection error: ${error.message}`));
    socket.on("close", () => this.destroy("the connection was closed"));
    this.session = makeSession(socket);
    this.session.on("error", (error: Error) => this.destroy(`session error: ${error.message}`));
    this.session.on("close", () => this.destroy("the session was closed"));
    this.session.on("goaway", () => this.#leave("the gateway is shutting down"));
    this.#prober = new Prober(
      clock,
      {
        ping: (onAnswer) => this.#ping(onAnswer),
        bytesRead: () => socket.bytesRead,
        bytesWritten: () => socket.bytesWritten,
        hasStreams: () => this.#streams > 0,
        isProbed: () => user.isProbed === true,
      },
      {
        sent: (at) => user.sent(at),
        answered: (sentAt, rttMs) => user.answered(sentAt, rttMs),
        missed: () => user.missed?.(),
        down: (since) => this.destroy("three probes were not answered and no bytes arrived", since),
      },
    );
  }

  get streams(): number {
    return this.#streams;
  }

  /** Number of open and reserved streams. */
  get load(): number {
    return this.#streams + this.#reserved;
  }

  /** Reserves room for a stream that is opened in this turn of the event loop. */
  reserve(): void {
    this.#reserved += 1;
    if (this.#reserved === 1) this.#clock.after(0, () => (this.#reserved = 0));
  }

  /** Reports whether streams may be opened. */
  get isOpen(): boolean {
    return !this.#isOver && !this.session.closed && !this.session.destroyed;
  }

  get rttMs(): number | undefined {
    return this.#prober.rttMs;
  }

  /** Reports whether probes are overdue and no bytes arrived. */
  get isInTrouble(): boolean {
    return this.#isOver || this.#prober.isInTrouble;
  }

  get loss(): number {
    return this.#prober.loss;
  }

  get moved(): Moved {
    return this.#last ?? { bytesIn: this.#socket.bytesRead, bytesOut: this.#socket.bytesWritten };
  }

  /** Starts probing; resolves after three answers. @throws {SessionError} `tunnel-lost` when it ends before. */
  async prove(): Promise<void> {
    const cancel = this.#clock.after(PROVE_MS, () => this.destroy("three probes were not answered within 10 s"));
    const end = await Promise.race([this.#prober.prove(ANSWERS_TO_PROVE), this.closing]);
    cancel();
    if (end !== undefined) throw new SessionError("tunnel-lost", end.cause);
  }

  probeNow(): void {
    this.#prober.probeNow();
  }

  /** Probes before new traffic, unless a probe was just sent. */
  hurry(): void {
    this.#prober.hurry();
  }

  /** Counts a stream until it closes. */
  hold(stream: Closes): void {
    this.#streams += 1;
    if (this.#reserved > 0) this.#reserved -= 1;
    if (this.#streams === 1) this.onIdle(false);
    this.#prober.hurry();
    stream.once("close", () => {
      this.#streams -= 1;
      if (this.#streams === 0) this.onIdle(true);
    });
  }

  /** Accepts no new streams; ends with the last running stream, or after ten minutes. */
  retire(cause: string): void {
    this.#leave(cause);
    if (this.#isOver) return;
    this.session.close();
    const cancel = this.#clock.after(RETIRED_MS, () => this.destroy("retired for 10 min"));
    void this.ended.then(cancel);
  }

  /** Ends it and all its streams immediately with `tunnel-lost`. */
  destroy(cause: string, since = this.#clock.elapsed()): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#last = this.moved;
    this.#prober.close();
    this.session.destroy(new SessionError("tunnel-lost", cause), constants.NGHTTP2_CANCEL);
    this.#socket.destroy();
    this.#close({ cause, since });
    this.#end({ cause, since });
  }

  /** Node cancels the probes of a closing session; TCP keep-alive (RFC 9293 §3.8.4) then detects a dead peer. */
  #leave(cause: string): void {
    this.#close({ cause, since: this.#clock.elapsed() });
    this.#prober.close();
    this.#socket.setKeepAlive(true, KEEP_ALIVE_MS);
  }

  #ping(onAnswer: () => void): void {
    if (this.session.destroyed) return;
    if (this.session.closed) return this.#leave("the session is closing");
    this.session.ping((error: Error | null) => {
      if (error === null) onAnswer();
    });
  }
}

/** A session on which the gateway opens streams. */
export type InboundHop = Hop<ServerHttp2Session>;
/** A session on which this node opens streams; every `request` counts. */
export type OutboundHop = Hop<ClientHttp2Session>;

/** Counts every request of a client session as a stream of its hop. */
export function countRequests(hop: OutboundHop): void {
  const { session } = hop;
  const request = session.request.bind(session);
  session.request = (...args) => {
    const stream = request(...args);
    hop.hold(stream);
    return stream;
  };
}
