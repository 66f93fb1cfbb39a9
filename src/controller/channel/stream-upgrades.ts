import type { IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { WebSocketServer } from "ws";
import { toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { webSocketFrames, type FrameSocket } from "../../host/net/frame-socket.ts";
import { STREAM_LIMITS, STREAM_SUBPROTOCOL, TICKET_HEADER } from "../../protocol/channel/streams.ts";
import type { Streams } from "./streams.ts";
import type { ConnectionLimits } from "./connection-limits.ts";
import type { Source, Sources } from "../http/sources.ts";
import { UpgradeRefusals } from "./upgrade-refusals.ts";
import type { NodeTerminal } from "../http/upgrade.ts";

export interface StreamUpgradesDeps {
  readonly streams: Pick<Streams, "admit">;
  /** Answers an API request, or calls `upgrade` with the terminal to join. */
  readonly api: (request: Request, upgrade: (terminal: NodeTerminal) => void, source: Source) => Promise<Response>;
  readonly clock: Clock;
  readonly connections: Pick<ConnectionLimits, "upgraded">;
  readonly sources: Pick<Sources, "of">;
}

/** Limit of callers whose terminal is being opened. */
const MAX_OPENING = 256;
/** Headers passed to the API; the others of an upgrade belong to the WebSocket. */
const PASSED_HEADERS = ["authorization", "x-request-id", "host"] as const;

/** Upgrades requests to the two sides of streams: nodes present a ticket, callers use the API. */
export class StreamUpgrades {
  readonly #deps: StreamUpgradesDeps;
  readonly #refusals: UpgradeRefusals;
  readonly #sockets = new WebSocketServer({
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    maxPayload: STREAM_LIMITS.takenFrameBytes,
    handleProtocols: (offered) => (offered.has(STREAM_SUBPROTOCOL) ? STREAM_SUBPROTOCOL : false),
  });
  #opening = 0;

  constructor(deps: StreamUpgradesDeps) {
    this.#deps = deps;
    this.#refusals = new UpgradeRefusals(deps.clock);
  }

  /** Accepts a node that dials for an ordered stream. */
  fromNode(request: IncomingMessage, stream: Duplex, head: Buffer): void {
    stream.on("error", ignore);
    const ticket = request.headers[TICKET_HEADER];
    const arrive = typeof ticket === "string" ? this.#deps.streams.admit(ticket) : undefined;
    if (arrive === undefined) return this.#refusals.refuse(stream, { status: 401 });
    this.#sockets.handleUpgrade(request, stream, head, (socket) => {
      this.#deps.connections.upgraded(request.socket);
      arrive(webSocketFrames(socket));
    });
  }

  /** Passes a caller's request to the API and returns its errors as an HTTP response. Never rejects. */
  async fromCaller(request: IncomingMessage, stream: Duplex, head: Buffer): Promise<void> {
    stream.on("error", ignore);
    if (this.#opening >= MAX_OPENING) return this.#refusals.refuse(stream, { status: 503 });
    this.#opening += 1;
    const disconnected = new AbortController();
    const onClose = (): void => disconnected.abort();
    stream.once("close", onClose);
    try {
      const slot: { terminal?: NodeTerminal } = {};
      const take = (opened: NodeTerminal): void => {
        slot.terminal = opened;
      };
      const response = await this.#deps.api(
        webRequest(request, disconnected.signal),
        take,
        this.#deps.sources.of(request),
      );
      if (slot.terminal === undefined) await this.#answer(stream, response);
      else this.#join(request, stream, head, slot.terminal);
    } catch (error) {
      this.#refusals.refuse(stream, { status: 400, body: toError(error).name });
    } finally {
      this.#opening -= 1;
      stream.off("close", onClose);
    }
  }

  #join(request: IncomingMessage, stream: Duplex, head: Buffer, terminal: NodeTerminal): void {
    let socket: FrameSocket | undefined;
    // The library answers a failed handshake itself and then only closes.
    stream.once("close", () => {
      if (socket === undefined) terminal.discard();
    });
    if (stream.destroyed) return terminal.discard();
    this.#sockets.handleUpgrade(request, stream, head, (opened) => {
      this.#deps.connections.upgraded(request.socket);
      socket = webSocketFrames(opened);
      terminal.join(socket);
    });
  }

  async #answer(stream: Duplex, response: Response): Promise<void> {
    const { status, headers } = response;
    this.#refusals.refuse(stream, { status, headers: Object.fromEntries(headers), body: await response.text() });
  }
}

function webRequest({ method, url, headers }: IncomingMessage, signal: AbortSignal): Request {
  const passed = new Headers();
  for (const name of PASSED_HEADERS) {
    const value = headers[name];
    if (typeof value === "string") passed.set(name, value);
  }
  return new Request(new URL(url ?? "/", "http://controller"), { method: method ?? "GET", headers: passed, signal });
}

function ignore(): void {}
