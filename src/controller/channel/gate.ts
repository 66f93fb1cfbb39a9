import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { WebSocketServer, type WebSocket } from "ws";
import type { Clock } from "../../host/clock.ts";
import { SESSION_LIMITS, SESSION_PATH, SUBPROTOCOL } from "../../protocol/channel/envelope.ts";
import type { ConnectionLimits } from "./connection-limits.ts";
import type { Greeter } from "./greeter.ts";
import { pathOf } from "./http-io.ts";
import type { Sources } from "./sources.ts";
import { UpgradeRefusals } from "./upgrade-refusals.ts";

/** Sockets that may be open before their hello succeeded: from one source prefix, and in all. */
export const MAX_STRANGERS_PER_PREFIX = 16;
export const MAX_STRANGERS = 1024;
const RETRY_SECONDS = 10;

/** Turns upgrade requests into sockets, as many as may be unauthenticated at a time. */
export class Gate {
  readonly #greeter: Greeter;
  readonly #connections: Pick<ConnectionLimits, "upgraded">;
  readonly #sources: Pick<Sources, "of">;
  readonly #sockets = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    maxPayload: SESSION_LIMITS.maxBytes,
    // The library would close a connection with many pings without a reason; the session answers them within its budget.
    autoPong: false,
    handleProtocols: (offered) => (offered.has(SUBPROTOCOL) ? SUBPROTOCOL : false),
  });
  readonly #ofPrefix = new Map<string, number>();
  readonly #strangers = new Set<WebSocket>();
  readonly #refusals: UpgradeRefusals;
  #isClosed = false;

  constructor(
    greeter: Greeter,
    clock: Clock,
    connections: Pick<ConnectionLimits, "upgraded">,
    sources: Pick<Sources, "of">,
  ) {
    this.#connections = connections;
    this.#sources = sources;
    this.#greeter = greeter;
    this.#refusals = new UpgradeRefusals(clock);
  }

  /** Handles the server's `upgrade` event. */
  upgrade(request: IncomingMessage, stream: Duplex, head: Buffer): void {
    stream.on("error", ignore);
    if (this.#isClosed) return this.#refuse(stream, 503);
    if (pathOf(request) !== SESSION_PATH) return this.#refuse(stream, 404);
    if (!offersSubprotocol(request)) return this.#refuse(stream, 400);
    const { address, prefix } = this.#sources.of(request);
    if (this.#from(prefix) >= MAX_STRANGERS_PER_PREFIX) return this.#refuse(stream, 429);
    if (this.#strangers.size >= MAX_STRANGERS) return this.#refuse(stream, 503);
    this.#sockets.handleUpgrade(request, stream, head, (socket) => {
      // Errors are followed by `close`, where everything is done that there is to do.
      socket.on("error", ignore);
      answerTogether(stream);
      this.#connections.upgraded(request.socket);
      if (prefix !== undefined) this.#ofPrefix.set(prefix, this.#from(prefix) + 1);
      this.#strangers.add(socket);
      this.#greeter.greet(socket, stream, address, () => this.#settled(socket, prefix));
    });
  }

  /** Lets nobody in any more, and those go that did not say who they are. */
  close(): void {
    this.#isClosed = true;
    for (const socket of this.#strangers) socket.terminate();
  }

  #refuse(stream: Duplex, status: number): void {
    const isLater = status === 429 || status === 503;
    this.#refusals.refuse(stream, { status, headers: isLater ? { "retry-after": String(RETRY_SECONDS) } : {} });
  }

  #from(prefix: string | undefined): number {
    return prefix === undefined ? 0 : (this.#ofPrefix.get(prefix) ?? 0);
  }

  #settled(socket: WebSocket, prefix: string | undefined): void {
    this.#strangers.delete(socket);
    if (prefix === undefined) return;
    const left = this.#from(prefix) - 1;
    if (left === 0) this.#ofPrefix.delete(prefix);
    else this.#ofPrefix.set(prefix, left);
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
