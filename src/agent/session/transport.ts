import type { Socket } from "node:net";
import { WebSocket } from "ws";
import { errnoOf, SessionError, toError } from "../../errors.ts";
import { dialRequestFor, type Dialler, type DialRequest } from "../../host/dial.ts";
import { parseRetryAfter } from "../../host/http-client.ts";
import { isLoopback } from "../../lib/proxy.ts";
import { HANDSHAKE_LIMITS, SESSION_LIMITS, SUBPROTOCOL } from "../../protocol/envelope.ts";

export interface TransportRequest {
  readonly url: string;
  readonly pins: readonly string[];
  readonly knownAddresses: readonly string[];
  readonly timeoutMs: number;
}

/** What a transport tells its owner. After `onEnd` nothing follows. */
export interface TransportListener {
  /** Any received data, the parts of a message included: a slow line may need minutes for a whole one. */
  onHeard(): void;
  onMessage(frame: string): void;
  onPong(): void;
  onEnd(end: TransportEnd): void;
}

/** How a connection ended: a close code of the other side, or an error of ours. */
export interface TransportEnd {
  readonly closeCode: number | undefined;
  readonly reason: string;
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

/** WebSockets over a dialler: no compression, no redirects, one subprotocol. */
export function webSocketTransport(dialler: Dialler, now: () => number): OpenTransport {
  return async (request, listener, signal) => {
    const url = new URL(request.url);
    const isTls = url.protocol === "wss:";
    if (!isTls && !isLoopback(url.hostname)) {
      throw new SessionError("insecure", `${request.url}: ws:// is accepted towards loopback only`);
    }
    const dialled = await dialler.dial(transportDial(request), signal);
    const offer = { protocol: SUBPROTOCOL, maxBytes: SESSION_LIMITS.maxBytes, timeoutMs: request.timeoutMs };
    const socket = await upgrade(url, dialled.socket, offer, signal, now);
    dialled.socket.on("data", () => listener.onHeard());
    return attach(socket, dialled.address, dialled.tlsKey, listener);
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
          details: { status, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) },
        }),
      );
    };
    socket.on("open", onOpen).on("error", fail).on("unexpected-response", onResponse);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
  });
}

function attach(
  socket: WebSocket,
  address: string | undefined,
  tlsKey: string | undefined,
  listener: TransportListener,
): Transport {
  let limit = HANDSHAKE_LIMITS.maxBytes;
  let failure: string | undefined;
  let isTooLarge = false;
  socket.on("message", (data: Buffer, isBinary) => {
    if (isBinary) socket.close(1003, "text only");
    else if (data.length > limit) socket.close(1009, `larger than ${limit} bytes`);
    else listener.onMessage(data.toString("utf8"));
  });
  socket.on("pong", () => listener.onPong());
  socket.on("error", (error) => {
    failure = error.message;
    // The library has sent 1009 itself and hears no answer to it.
    isTooLarge = errnoOf(error) === "WS_ERR_UNSUPPORTED_MESSAGE_LENGTH";
  });
  socket.once("close", (code, reason) => {
    listener.onEnd({
      closeCode: isTooLarge ? 1009 : code === 1006 ? undefined : code,
      reason: failure ?? (reason.length > 0 ? reason.toString("utf8") : `closed with ${code}`),
    });
  });
  socket.resume();
  return {
    address,
    tlsKey,
    send: (text) => {
      if (socket.readyState === WebSocket.OPEN) socket.send(text);
    },
    ping: () => {
      if (socket.readyState === WebSocket.OPEN) socket.ping();
    },
    buffered: () => socket.bufferedAmount,
    widen: () => {
      limit = SESSION_LIMITS.maxBytes;
    },
    close: (code, reason) => {
      socket.close(code, reason);
      socket.terminate();
    },
    terminate: () => socket.terminate(),
  };
}
