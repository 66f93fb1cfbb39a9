import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { WebSocketServer, type WebSocket } from "ws";
import type { Clock } from "../../host/clock.ts";
import { SESSION_LIMITS, SESSION_PATH, SUBPROTOCOL } from "../../protocol/channel/envelope.ts";
import type { ConnectionLimits } from "./connection-limits.ts";
import type { Greeter } from "./greeter.ts";
import { pathOf } from "./http-io.ts";
import type { Sources } from "../http/sources.ts";
import { UpgradeRefusals } from "./upgrade-refusals.ts";

/** Limits of sockets before a successful hello: per source prefix, and in total. */
const MAX_UNAUTHENTICATED_PER_PREFIX = 16;
const MAX_UNAUTHENTICATED = 1024;
const RETRY_SECONDS = 10;

/** Upgrades requests to session sockets, with a limit of unauthenticated ones. */
export class SessionUpgrades {
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
  readonly #unauthenticated = new Set<WebSocket>();
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
    if (this.#countOf(prefix) >= MAX_UNAUTHENTICATED_PER_PREFIX) return this.#refuse(stream, 429);
    if (this.#unauthenticated.size >= MAX_UNAUTHENTICATED) return this.#refuse(stream, 503);
    this.#sockets.handleUpgrade(request, stream, head, (socket) => {
      // Errors are followed by `close`, which does the cleanup.
      socket.on("error", ignore);
      batchResponses(stream);
      this.#connections.upgraded(request.socket);
      if (prefix !== undefined) this.#ofPrefix.set(prefix, this.#countOf(prefix) + 1);
      this.#unauthenticated.add(socket);
      this.#greeter.greet(socket, stream, address, () => this.#settled(socket, prefix));
    });
  }

  /** Rejects new sockets and closes unauthenticated ones. */
  close(): void {
    this.#isClosed = true;
    for (const socket of this.#unauthenticated) socket.terminate();
  }

  #refuse(stream: Duplex, status: number): void {
    const isLater = status === 429 || status === 503;
    this.#refusals.refuse(stream, { status, headers: isLater ? { "retry-after": String(RETRY_SECONDS) } : {} });
  }

  #countOf(prefix: string | undefined): number {
    return prefix === undefined ? 0 : (this.#ofPrefix.get(prefix) ?? 0);
  }

  #settled(socket: WebSocket, prefix: string | undefined): void {
    this.#unauthenticated.delete(socket);
    if (prefix === undefined) return;
    const left = this.#countOf(prefix) - 1;
    if (left === 0) this.#ofPrefix.delete(prefix);
    else this.#ofPrefix.set(prefix, left);
  }
}

/**
 * Batches the responses to messages that arrive together into one write, and with TLS into one record. Raises a loaded server's throughput
 * by a tenth.
 */
export function batchResponses(stream: Duplex): void {
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
