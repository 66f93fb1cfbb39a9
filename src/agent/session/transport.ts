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

/** What a transport tells its owner. After `onEnd` nothing follows. */
export interface TransportListener {
  /** A whole message or a pong was received, or the other side takes what it asked for while we do not read. */
  onHeard(): void;
  onMessage(frame: string): void;
  onPong(): void;
  onEnd(end: TransportEnd): void;
}

/** How a connection ended: a close code of the other side, or an error of ours. */
export interface TransportEnd {
  readonly closeCode: number | undefined;
  /** The other side's words, or an error of ours. */
  readonly reason: string;
  /** Why this side ended it, if it did: too much came, or the other side does not read. */
  readonly ours?: "flooded" | "not-read";
}

/** One open WebSocket (RFC 6455). */
export interface Transport {
  readonly address: string | undefined;
  readonly tlsKey: string | undefined;
  send(text: string): void;
  ping(): void;
  /** Bytes accepted for sending that the kernel has not taken yet. */
  buffered(): number;
  /** Lets larger messages in, once the other side has answered hello. */
  widen(): void;
  /** Lifts the limits of a handshake, once the other side has proved itself. */
  trust(): void;
  /** Says goodbye and gives the closing handshake no time. */
  close(code: number, reason: string): void;
  /** Cuts at once: a dead peer never finishes a closing handshake. */
  terminate(): void;
}

/** Opens a WebSocket to the control plane; rejects with the dialler's errors or `SessionError` `upgrade-refused` (details: `status`, `retryAfterMs`). */
export type OpenTransport = (
  request: TransportRequest,
  listener: TransportListener,
  signal: AbortSignal,
) => Promise<Transport>;

type TransportClock = Pick<Clock, "elapsed" | "after">;

/** WebSockets over a dialler: no compression, no redirects, one subprotocol. */
export function webSocketTransport(dialler: Dialler, clock: TransportClock, now: () => number): OpenTransport {
  return async (request, listener, signal) => {
    const url = new URL(request.url);
    const isTls = url.protocol === "wss:";
    if (!isTls && !isLoopback(url.hostname)) {
      throw new SessionError("insecure", `${request.url}: ws:// is accepted towards loopback only`);
    }
    const dialled = await dialler.dial(transportDial(request), signal);
    // The library would cut a connection with many pings without a word; here the budget limits them.
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

/** How the control plane is dialled for a WebSocket: pinned, by all addresses, without TLS on this machine only. */
export function transportDial({ url, pins, knownAddresses, timeoutMs }: TransportRequest): DialRequest {
  return { ...dialRequestFor(new URL(url), pins, timeoutMs), knownAddresses, plainOnlyLoopback: true };
}

/** What an upgrade offers and takes. */
export interface UpgradeOffer {
  readonly protocol: string;
  readonly maxBytes: number;
  readonly timeoutMs: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** Whether pings are answered by themselves; they are unless it is false. */
  readonly autoPong?: boolean;
}

/** Makes a WebSocket of a connection that was dialled; it is paused. @throws {SessionError} `upgrade-refused` (details: `status`, `retryAfterMs`). */
export function upgrade(
  url: URL,
  raw: Socket,
  offer: UpgradeOffer,
  signal: AbortSignal,
  now: () => number,
): Promise<WebSocket> {
  return new Promise((resolve, reject) => {
    // TLS is done already, so the library is given a plain address and the finished socket.
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
      // Paused until its owner listens, lest the first message fall between the two.
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

/** Limits of all that is received before the other side has proved itself: until hello is answered, and until the answer is judged. */
const BEFORE_ANSWER = { frames: 64, bytes: 256 * 1024 };
const BEFORE_PROOF = { frames: 1024, bytes: 4 * 1024 * 1024 };
/** Above this many unsent bytes nothing is read, since each question brings another answer. */
const UNSENT_BYTES = 1024 * 1024;
/** Above this many it is cut at once: answers that were under way when reading stopped. */
const MAX_UNSENT_BYTES = 16 * 1024 * 1024;
/** While nothing is read, the other side must take so many bytes within this time. */
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
  const gate = readingGate(socket, clock, () => listener.onHeard());
  const end = (why: NonNullable<TransportEnd["ours"]>, text: string): void => {
    if (ours !== undefined) return;
    [ours, failure] = [why, text];
    gate.pause("ended");
    if (why === "not-read") return socket.terminate();
    // Nothing more is read, so that the other side cannot finish the closing handshake.
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
  meterSocket(gate.metered, {
    stream,
    limits: SESSION_BUDGET,
    clock,
    onExceeded: () => end("flooded", "the control plane sends more messages or bytes than a session may"),
  });
  const unsent = watchUnsent({
    clock,
    buffered: () => socket.bufferedAmount,
    taken: () => stream.bytesWritten - stream.writableLength,
    onMuch: () => gate.pause("unsent"),
    onTaken: () => listener.onHeard(),
    onLittle: () => gate.resume("unsent"),
    onStuck: (bytes) => end("not-read", `the control plane does not read: ${bytes} bytes wait for it`),
  });
  stream.on("drain", unsent.look);
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
    unsent.look();
  });
  socket.on("pong", () => {
    count(1, 0);
    listener.onHeard();
    listener.onPong();
  });
  socket.on("error", (error) => {
    failure ??= error.message;
    // The library has sent 1009 itself and hears no answer to it.
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
      socket.send(text, unsent.look);
      unsent.look();
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

/** While the budget stops reading, silence is ours: so often the other side counts as heard. */
const HELD_MS = 15_000;

/** Lets several stop and resume reading: it goes on when none of them has stopped it. */
function readingGate(
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
  /** Bytes that the kernel has taken so far. */
  readonly taken: () => number;
  readonly onMuch: () => void;
  readonly onTaken: () => void;
  readonly onLittle: () => void;
  readonly onStuck: (bytes: number) => void;
}

/** Watches what waits to be sent: whether it is much, little again, or stuck. */
function watchUnsent(watch: UnsentWatch): { readonly look: () => void; readonly close: () => void } {
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
    look() {
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
