import { STATUS_CODES, type IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { WebSocketServer, type WebSocket } from "ws";
import type { Clock } from "../../host/clock.ts";
import { SESSION_LIMITS, SESSION_PATH, SUBPROTOCOL } from "../../protocol/envelope.ts";
import type { Greeter } from "./greeter.ts";
import { addressOf, pathOf } from "./http-io.ts";

/** Sockets that may be open before their hello succeeded: from one source address, and in all. */
export const MAX_STRANGERS_PER_ADDRESS = 16;
export const MAX_STRANGERS = 1024;
const RETRY_SECONDS = 10;
/** How long a refusal may take to leave before its socket is cut. */
const REFUSAL_GRACE_MS = 2000;

/** Turns upgrade requests into sockets, as many as may be unauthenticated at a time. */
export class Gate {
  readonly #greeter: Greeter;
  readonly #sockets = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    maxPayload: SESSION_LIMITS.maxBytes,
    handleProtocols: (offered) => (offered.has(SUBPROTOCOL) ? SUBPROTOCOL : false),
  });
  readonly #ofAddress = new Map<string, number>();
  readonly #strangers = new Set<WebSocket>();
  readonly #clock: Clock;
  #refusing = 0;
  #isClosed = false;

  constructor(greeter: Greeter, clock: Clock) {
    this.#greeter = greeter;
    this.#clock = clock;
  }

  /** Handles the server's `upgrade` event. */
  upgrade(request: IncomingMessage, stream: Duplex, head: Buffer): void {
    stream.on("error", ignore);
    if (this.#isClosed) return this.#refuse(stream, 503);
    if (pathOf(request) !== SESSION_PATH) return this.#refuse(stream, 404);
    if (!offersSubprotocol(request)) return this.#refuse(stream, 400);
    const address = addressOf(request);
    if ((this.#ofAddress.get(address) ?? 0) >= MAX_STRANGERS_PER_ADDRESS) return this.#refuse(stream, 429);
    if (this.#strangers.size >= MAX_STRANGERS) return this.#refuse(stream, 503);
    this.#sockets.handleUpgrade(request, stream, head, (socket) => {
      // Errors are followed by `close`, where everything is done that there is to do.
      socket.on("error", ignore);
      answerTogether(stream);
      this.#ofAddress.set(address, (this.#ofAddress.get(address) ?? 0) + 1);
      this.#strangers.add(socket);
      this.#greeter.greet(socket, stream, address, () => this.#settled(socket, address));
    });
  }

  /** Lets nobody in any more, and those go that did not say who they are. */
  close(): void {
    this.#isClosed = true;
    for (const socket of this.#strangers) socket.terminate();
  }

  /** Says no and lets the socket go: ending it would only close our half. */
  #refuse(stream: Duplex, status: number): void {
    if (stream.destroyed || this.#refusing >= MAX_STRANGERS) return void stream.destroy();
    this.#refusing += 1;
    const letGo = (): void => void stream.destroy();
    const cancel = this.#clock.after(REFUSAL_GRACE_MS, letGo);
    stream.once("close", () => {
      this.#refusing -= 1;
      cancel();
    });
    const retry = status === 429 || status === 503 ? `Retry-After: ${RETRY_SECONDS}\r\n` : "";
    const head = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}\r\nConnection: close\r\nContent-Length: 0\r\n${retry}\r\n`;
    // Unread input would turn the close into a reset, which could overtake the answer.
    stream.resume();
    stream.end(head, letGo);
  }

  #settled(socket: WebSocket, address: string): void {
    this.#strangers.delete(socket);
    const left = (this.#ofAddress.get(address) ?? 1) - 1;
    if (left === 0) this.#ofAddress.delete(address);
    else this.#ofAddress.set(address, left);
  }
}

/**
 * Lets the answers to what arrives together leave together: one write, and with TLS one record, instead of one each. A
 * server under load gets a tenth more done.
 */
export function answerTogether(stream: Duplex): void {
  stream.prependListener("data", () => {
    stream.cork();
    setImmediate(() => stream.uncork());
  });
}

function ignore(): void {}

function offersSubprotocol(request: IncomingMessage): boolean {
  const offered = request.headers["sec-websocket-protocol"] ?? "";
  return offered.split(",").some((token) => token.trim() === SUBPROTOCOL);
}
