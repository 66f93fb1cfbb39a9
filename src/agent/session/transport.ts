import type { Socket } from "node:net";
import { WebSocket } from "ws";
import { errnoOf, SessionError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { dialRequestFor, type Dialled, type Dialler, type DialRequest } from "../../host/net/dial.ts";
import { parseRetryAfter } from "../../host/net/http-client.ts";
import { meterSocket } from "../../host/net/metered-socket.ts";
import { isLoopback } from "../../lib/net/proxy.ts";
import { HANDSHAKE_LIMITS, SESSION_BUDGET, SESSION_LIMITS, SUBPROTOCOL } from "../../protocol/channel/envelope.ts";
import { defined } from "../../lib/defined.ts";

export interface TransportRequest {
  readonly url: string;
  readonly pins: readonly string[];
  readonly knownAddresses: readonly string[];
  readonly timeoutMs: number;
}

/** The events of a transport. Nothing follows `onEnd`. */
export interface TransportListener {
  /** Called on a sign of life: a whole message, a pong, or, while reading is paused, progress of sending. */
  onHeard(): void;
  onMessage(frame: string): void;
  onPong(): void;
  onEnd(end: TransportEnd): void;
}

/** The end of a connection: the peer's close code, or an error of this side. */
export interface TransportEnd {
  readonly closeCode: number | undefined;
  /** The peer's reason, or an error of this side. */
  readonly reason: string;
  /** Reason why this side ended it: too much was received, or the peer does not read. */
  readonly ours?: "flooded" | "not-read";
}

/** One open WebSocket (RFC 6455). */
export interface Transport {
  readonly address: string | undefined;
  readonly tlsKey: string | undefined;
  send(text: string): void;
  ping(): void;
  /** Bytes accepted for sending that the kernel has not accepted yet. */
  buffered(): number;
  /** Accepts larger messages, once the peer has answered hello. */
  widen(): void;
  /** Lifts the limits of the handshake, once the peer has proved itself. */
  trust(): void;
  /** Sends a close frame and does not wait for the closing handshake. */
  close(code: number, reason: string): void;
  /** Closes the connection at once: a dead peer never completes a closing handshake. */
  terminate(): void;
}

/** Opens a WebSocket to the control plane; rejects with the dialler's errors or `SessionError` `upgrade-refused` (details: `status`, `retryAfterMs`). */
export type OpenTransport = (
  request: TransportRequest,
  listener: TransportListener,
  signal: AbortSignal,
) => Promise<Transport>;

type TransportClock = Pick<Clock, "elapsed" | "after">;

/** Opens WebSockets over a dialler: no compression, no redirects, one subprotocol. */
export function webSocketTransport(dialler: Dialler, clock: TransportClock, now: () => number): OpenTransport {
  return async (request, listener, signal) => {
    const url = new URL(request.url);
    const isTls = url.protocol === "wss:";
    if (!isTls && !isLoopback(url.hostname)) {
      throw new SessionError("insecure", `${request.url}: ws:// is accepted towards loopback only`);
    }
    const dialled = await dialler.dial(transportDial(request), signal);
    // The library would close a connection with many pings silently; the budget limits them instead.
    const offer = {
      protocol: SUBPROTOCOL,
      maxBytes: SESSION_LIMITS.maxBytes,
      timeoutMs: request.timeoutMs,
      autoPong: false,
    };
    const socket = await upgrade(url, dialled.socket, offer, signal, now);
    return attach(socket, dialled, listener, clock);
  };
}

/** Returns how to dial the control plane for a WebSocket: pinned, at every address, and without TLS on loopback only. */
export function transportDial({ url, pins, knownAddresses, timeoutMs }: TransportRequest): DialRequest {
  return { ...dialRequestFor(new URL(url), pins, timeoutMs), knownAddresses, plainOnlyLoopback: true };
}

/** The options of an upgrade. */
export interface UpgradeOffer {
  readonly protocol: string;
  readonly maxBytes: number;
  readonly timeoutMs: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** Whether pings are answered automatically; true by default. */
  readonly autoPong?: boolean;
}

/** Upgrades a connection to a WebSocket; it is paused. @throws {SessionError} `upgrade-refused` (details: `status`, `retryAfterMs`). */
export function upgrade(
  url: URL,
  raw: Socket,
  offer: UpgradeOffer,
  signal: AbortSignal,
  now: () => number,
): Promise<WebSocket> {
  return new Promise((resolve, reject) => {
    // The socket has TLS already, so the library gets a plain address.
    const address = `ws://${url.host}${url.pathname}`;
    const socket = new WebSocket(address, offer.protocol, {
      createConnection: () => raw,
      perMessageDeflate: false,
      followRedirects: false,
      handshakeTimeout: offer.timeoutMs,
      maxPayload: offer.maxBytes,
      autoPong: offer.autoPong ?? true,
      headers: { ...offer.headers, host: url.host },
    });
    const onAbort = (): void => fail(toError(signal.reason));
    const clear = (): void => {
      signal.removeEventListener("abort", onAbort);
      socket.off("open", onOpen).off("error", fail).off("unexpected-response", onResponse);
    };
    const fail = (error: Error): void => {
      clear();
      socket.on("error", () => undefined).terminate();
      raw.destroy();
      reject(
        error instanceof SessionError ? error : new SessionError("upgrade-refused", error.message, { cause: error }),
      );
    };
    const onOpen = (): void => {
      clear();
      // Paused until its owner listens, so that no message is lost.
      socket.pause();
      resolve(socket);
    };
    const onResponse = (
      _request: unknown,
      response: { statusCode?: number; headers: Record<string, unknown> },
    ): void => {
      const status = response.statusCode ?? 0;
      const header = response.headers["retry-after"];
      const retryAfterMs = parseRetryAfter(typeof header === "string" ? header : undefined, now());
      fail(
        new SessionError("upgrade-refused", `the control plane answered HTTP ${status}`, {
          details: { status, ...defined({ retryAfterMs }) },
        }),
      );
    };
    socket.on("open", onOpen).on("error", fail).on("unexpected-response", onResponse);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
  });
}

/** Limits of what is received before the peer has proved itself: until it answers hello, and until that answer is judged. */
const BEFORE_ANSWER = { frames: 64, bytes: 256 * 1024 };
const BEFORE_PROOF = { frames: 1024, bytes: 4 * 1024 * 1024 };
/** Above this many unsent bytes nothing is read, since each request causes another answer. */
const UNSENT_BYTES = 1024 * 1024;
/** Above this many unsent bytes the connection is closed at once. */
const MAX_UNSENT_BYTES = 16 * 1024 * 1024;
/** While reading is stopped, the peer must accept so many bytes within this time. */
const TAKEN = { bytes: 16 * 1024, withinMs: 15_000 };
const POLICY_VIOLATION = 1008; // RFC 6455 §7.4.1

function attach(
  socket: WebSocket,
  { socket: stream, address, tlsKey }: Dialled,
  listener: TransportListener,
  clock: TransportClock,
): Transport {
  let limit = HANDSHAKE_LIMITS.maxBytes;
  let allowed: { frames: number; bytes: number } | undefined = BEFORE_ANSWER;
  const received = { frames: 0, bytes: 0 };
  let failure: string | undefined;
  let ours: TransportEnd["ours"];
  let isTooLarge = false;
  const reading = pausableReading(socket, clock, () => listener.onHeard());
  const end = (why: NonNullable<TransportEnd["ours"]>, text: string): void => {
    if (ours !== undefined) return;
    [ours, failure] = [why, text];
    reading.pause("ended");
    if (why === "not-read") return socket.terminate();
    // Reading has stopped, so the peer cannot complete the closing handshake.
    socket.close(POLICY_VIOLATION, text);
    return stream.destroySoon();
  };
  const count = (frames: number, bytes: number): void => {
    if (allowed === undefined) return;
    received.frames += frames;
    received.bytes += bytes;
    if (received.frames > allowed.frames || received.bytes > allowed.bytes) {
      end("flooded", "more messages or bytes than may come before the control plane has proved itself");
    }
  };
  stream.on("data", (chunk: Buffer) => count(0, chunk.byteLength));
  meterSocket(reading.metered, {
    stream,
    limits: SESSION_BUDGET,
    clock,
    onExceeded: () => end("flooded", "the control plane sends more messages or bytes than a session may"),
  });
  const unsent = watchUnsent({
    clock,
    buffered: () => socket.bufferedAmount,
    taken: () => stream.bytesWritten - stream.writableLength,
    onMuch: () => reading.pause("unsent"),
    onTaken: () => listener.onHeard(),
    onLittle: () => reading.resume("unsent"),
    onStuck: (bytes) => end("not-read", `the control plane does not read: ${bytes} bytes wait for it`),
  });
  stream.on("drain", unsent.check);
  socket.on("message", (data: Buffer, isBinary) => {
    count(1, 0);
    if (ours !== undefined) return;
    listener.onHeard();
    if (isBinary) socket.close(1003, "text only");
    else if (data.length > limit) socket.close(1009, `larger than ${limit} bytes`);
    else listener.onMessage(data.toString("utf8"));
  });
  socket.on("ping", (data) => {
    count(1, 0);
    if (ours !== undefined || socket.readyState !== WebSocket.OPEN) return;
    socket.pong(data);
    unsent.check();
  });
  socket.on("pong", () => {
    count(1, 0);
    listener.onHeard();
    listener.onPong();
  });
  socket.on("error", (error) => {
    failure ??= error.message;
    // The library has sent 1009 itself and gets no answer to it.
    isTooLarge = errnoOf(error) === "WS_ERR_UNSUPPORTED_MESSAGE_LENGTH";
  });
  socket.once("close", (code, reason) => {
    unsent.close();
    const closeCode = isTooLarge ? 1009 : code === 1006 || ours !== undefined ? undefined : code;
    const nothing = closeCode === undefined ? "the connection was closed without a close code" : "";
    const text = failure ?? (reason.length > 0 ? reason.toString("utf8") : nothing);
    listener.onEnd({ closeCode, reason: text, ...defined({ ours }) });
  });
  socket.resume();
  return {
    address,
    tlsKey,
    send: (text) => {
      if (socket.readyState !== WebSocket.OPEN) return;
      socket.send(text, unsent.check);
      unsent.check();
    },
    ping: () => {
      if (socket.readyState === WebSocket.OPEN) socket.ping();
    },
    buffered: () => socket.bufferedAmount,
    widen: () => {
      limit = SESSION_LIMITS.maxBytes;
      if (allowed !== undefined) allowed = BEFORE_PROOF;
    },
    trust: () => {
      allowed = undefined;
    },
    close: (code, reason) => {
      socket.close(code, reason);
      socket.terminate();
    },
    terminate: () => socket.terminate(),
  };
}

/** While the budget stops reading, silence is caused by this side: the peer counts as heard this often. */
const HELD_MS = 15_000;

/** Lets several parts stop reading, which resumes when none of them stops it. */
function pausableReading(
  socket: WebSocket,
  clock: TransportClock,
  onHeld: () => void,
): {
  readonly metered: Parameters<typeof meterSocket>[0];
  readonly pause: (who: string) => void;
  readonly resume: (who: string) => void;
} {
  const stoppedBy = new Set<string>();
  let cancel = (): void => undefined;
  const pause = (who: string): void => {
    stoppedBy.add(who);
    socket.pause();
  };
  const resume = (who: string): void => {
    stoppedBy.delete(who);
    if (stoppedBy.size === 0) socket.resume();
  };
  const hold = (): void => {
    onHeld();
    cancel = clock.after(HELD_MS, hold);
  };
  socket.once("close", () => cancel());
  const metered = {
    get readyState() {
      return socket.readyState;
    },
    OPEN: socket.OPEN,
    on: socket.on.bind(socket),
    pause: () => {
      pause("meter");
      cancel();
      hold();
    },
    resume: () => {
      cancel();
      onHeld();
      resume("meter");
    },
  };
  return { metered, pause, resume };
}

interface UnsentWatch {
  readonly clock: TransportClock;
  readonly buffered: () => number;
  /** Bytes that the kernel has accepted so far. */
  readonly taken: () => number;
  readonly onMuch: () => void;
  readonly onTaken: () => void;
  readonly onLittle: () => void;
  readonly onStuck: (bytes: number) => void;
}

/** Watches the unsent bytes: whether they are many, few again, or stuck. */
function watchUnsent(watch: UnsentWatch): { readonly check: () => void; readonly close: () => void } {
  const { clock, buffered, taken } = watch;
  let cancel: (() => void) | undefined;
  const expect = (before: number): void => {
    cancel = clock.after(TAKEN.withinMs, () => {
      if (taken() - before < TAKEN.bytes) return watch.onStuck(buffered());
      watch.onTaken();
      return expect(taken());
    });
  };
  return {
    check() {
      const bytes = buffered();
      if (bytes > MAX_UNSENT_BYTES) watch.onStuck(bytes);
      else if (cancel === undefined && bytes > UNSENT_BYTES) {
        watch.onMuch();
        expect(taken());
      } else if (cancel !== undefined && bytes < UNSENT_BYTES / 2) {
        cancel();
        cancel = undefined;
        watch.onLittle();
      }
    },
    close: () => cancel?.(),
  };
}
