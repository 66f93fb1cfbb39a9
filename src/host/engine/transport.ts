import { Agent, request, type IncomingMessage } from "node:http";
import type { Duplex } from "node:stream";
import { AgentError, errnoOf, toError, type HostError } from "../../errors.ts";
import { untilAborted } from "../../lib/async/until-aborted.ts";
import type { Clock } from "../clock.ts";
import { connectionFailure, refusal, unwell } from "./failure.ts";
import { limit, type Limit } from "./limit.ts";
import { negotiated, parseVersion } from "./version.ts";
import type { EngineVersion } from "./engine.ts";

export interface EngineCall {
  /** Prefix of every error message: `cannot start container 3f0c`. */
  readonly what: string;
  readonly method: "GET" | "POST" | "DELETE";
  /** Path without API version and query. */
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  /** Time limit of the whole response, or of its head for a stream, in milliseconds; 10 s by default. */
  readonly deadlineMs?: number;
  /** Time that a stream may be idle, in milliseconds; unlimited by default. */
  readonly idleMs?: number;
  /** Statuses of 400 and above that are not errors. */
  readonly accepts?: readonly number[];
  /** Whether to use a new connection; otherwise a `GET` shares pooled ones. */
  readonly isOnNewConnection?: boolean;
  /** Secrets that are removed from the engine's messages. */
  readonly secrets?: readonly string[];
}

export interface EngineAnswer {
  readonly status: number;
  readonly body: string;
}

/** A streamed response. The deadline no longer applies; the caller's signal still ends it. */
export interface EngineStream {
  readonly source: AsyncIterable<Buffer>;
  close(): void;
}

const DEADLINE_MS = 10_000;
/** A hung engine accepts connections without responding. */
const PING_MS = 5000;
const MAX_ANSWER_BYTES = 32 * 1024 * 1024;
const MAX_REFUSAL_BYTES = 64 * 1024;
/** Limit of pooled connections for reads. A change uses a new connection, because it could not be repeated. */
const MAX_SOCKETS = 4;
const IDLE_SOCKET_MS = 5000;

/** Sends requests to an engine's Unix socket. Connects on the first request, and then negotiates the API version. */
export class Transport {
  readonly #socketPath: string;
  readonly #clock: Clock;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: MAX_SOCKETS, maxFreeSockets: 1, timeout: IDLE_SOCKET_MS });
  #version: Promise<EngineVersion> | undefined;

  constructor(options: { readonly socketPath: string; readonly clock: Clock }) {
    this.#socketPath = options.socketPath;
    this.#clock = options.clock;
  }

  /** Sends a request and reads the whole response. */
  async send(call: EngineCall, signal: AbortSignal): Promise<EngineAnswer> {
    const prefix = await this.#prefix(signal);
    return this.#whole(call, prefix, signal);
  }

  /** Sends a request with a streamed response; resolves with its head. */
  async stream(call: EngineCall, signal: AbortSignal): Promise<EngineStream> {
    const prefix = await this.#prefix(signal);
    const bounds = limit(this.#clock, call.what, call.deadlineMs ?? DEADLINE_MS, signal);
    try {
      const { response } = await this.#open(call, prefix, bounds, {});
      if (isRefused(call, response)) throw await this.#refusal(call, response);
      bounds.allow(call.idleMs);
      response.once("close", () => bounds.release());
      return { source: this.#pieces(call, response, bounds), close: () => response.destroy() };
    } catch (error) {
      bounds.release();
      throw this.#failed(call, error, bounds);
    }
  }

  /** Sends a request that upgrades its connection to a raw byte stream (101 UPGRADED). */
  async upgrade(call: EngineCall, signal: AbortSignal): Promise<Duplex> {
    const prefix = await this.#prefix(signal);
    const bounds = limit(this.#clock, call.what, call.deadlineMs ?? DEADLINE_MS, signal);
    try {
      const { response, socket } = await this.#open(call, prefix, bounds, { connection: "Upgrade", upgrade: "tcp" });
      if (isRefused(call, response)) throw await this.#refusal(call, response);
      if (socket === undefined) {
        response.destroy();
        throw unwell(`${call.what}: the container engine did not hand over the connection`);
      }
      const end = (): void => void socket.destroy(toError(bounds.signal.reason));
      bounds.allow(undefined);
      bounds.signal.addEventListener("abort", end, { once: true });
      socket.once("close", () => bounds.release());
      // The caller may not have a listener yet; reading reports the error again.
      socket.on("error", () => undefined);
      return socket;
    } catch (error) {
      bounds.release();
      throw this.#failed(call, error, bounds);
    }
  }

  /** Returns the engine's product and versions, cached until a connection fails. */
  async version(signal: AbortSignal): Promise<EngineVersion> {
    signal.throwIfAborted();
    this.#version ??= this.#askVersion();
    return untilAborted(this.#version, signal);
  }

  /** Returns the negotiated API version, such as `1.41`. */
  async apiVersion(signal: AbortSignal): Promise<string> {
    return negotiated(await this.version(signal));
  }

  /**
   * Checks whether the engine responds; needs no version. Uses a new connection, because an engine that is shutting down still
   * responds on existing ones.
   */
  async ping(signal: AbortSignal): Promise<void> {
    const call = { what: "cannot reach the engine", method: "GET", path: "/_ping", deadlineMs: PING_MS } as const;
    await this.#whole({ ...call, isOnNewConnection: true }, "", signal);
  }

  async #prefix(signal: AbortSignal): Promise<string> {
    return `/v${await this.apiVersion(signal)}`;
  }

  #askVersion(): Promise<EngineVersion> {
    const call: EngineCall = { what: "cannot ask the engine for its version", method: "GET", path: "/version" };
    // All callers share the request, so only the deadline aborts it.
    const pending = this.#whole(call, "", new AbortController().signal).then(({ body }) => parseVersion(body));
    pending.catch(() => {
      if (this.#version === pending) this.#version = undefined;
    });
    return pending;
  }

  async #whole(call: EngineCall, prefix: string, signal: AbortSignal): Promise<EngineAnswer> {
    const bounds = limit(this.#clock, call.what, call.deadlineMs ?? DEADLINE_MS, signal);
    try {
      const { response } = await this.#open(call, prefix, bounds, {});
      if (isRefused(call, response)) throw await this.#refusal(call, response);
      return { status: response.statusCode ?? 0, body: await textOf(call, response, MAX_ANSWER_BYTES) };
    } catch (error) {
      throw this.#failed(call, error, bounds);
    } finally {
      bounds.release();
    }
  }

  async #open(
    call: EngineCall,
    prefix: string,
    bounds: Limit,
    more: Readonly<Record<string, string>>,
  ): Promise<{ readonly response: IncomingMessage; readonly socket?: Duplex }> {
    const attempt = (isFresh: boolean) => this.#request(call, prefix, bounds, more, isFresh);
    if (call.method !== "GET" || call.isOnNewConnection === true || "upgrade" in more) return attempt(true);
    try {
      return await attempt(false);
    } catch (error) {
      // The engine may have closed the idle connection just before.
      if (!(error instanceof StaleConnection)) throw error;
      return attempt(true);
    }
  }

  #request(
    call: EngineCall,
    prefix: string,
    bounds: Limit,
    more: Readonly<Record<string, string>>,
    isFresh: boolean,
  ): Promise<{ readonly response: IncomingMessage; readonly socket?: Duplex }> {
    const query = call.query === undefined ? "" : `?${new URLSearchParams(call.query).toString()}`;
    const body = call.body === undefined ? undefined : JSON.stringify(call.body);
    const headers = {
      host: "localhost",
      ...(body === undefined ? {} : { "content-type": "application/json", "content-length": Buffer.byteLength(body) }),
      ...call.headers,
      ...more,
    };
    return new Promise((resolve, reject) => {
      const outgoing = request({
        socketPath: this.#socketPath,
        method: call.method,
        path: `${prefix}${call.path}${query}`,
        headers,
        agent: isFresh ? false : this.#agent,
        signal: bounds.signal,
      });
      outgoing.on("error", (error) => {
        const isReset = errnoOf(error) === "ECONNRESET" || errnoOf(error) === "EPIPE";
        reject(outgoing.reusedSocket && isReset ? new StaleConnection() : error);
      });
      outgoing.once("close", () => reject(unwell(`${call.what}: the connection was closed without an answer`)));
      outgoing.once("response", (response) => resolve({ response }));
      outgoing.once("upgrade", (response, socket, head) => {
        if (head.length > 0) socket.unshift(head);
        resolve({ response, socket });
      });
      outgoing.end(body);
    });
  }

  async *#pieces(call: EngineCall, response: IncomingMessage, bounds: Limit): AsyncGenerator<Buffer, void> {
    try {
      for await (const piece of response as AsyncIterable<Buffer>) {
        // Only the engine's idle time counts, not the reader's.
        bounds.allow(undefined);
        yield piece;
        bounds.allow(call.idleMs);
      }
      if (!response.complete) throw unwell(`${call.what}: the container engine stopped in the middle of its answer`);
    } catch (error) {
      throw this.#failed(call, error, bounds);
    } finally {
      response.destroy();
      bounds.release();
    }
  }

  async #refusal(call: EngineCall, response: IncomingMessage): Promise<HostError> {
    const body = await textOf(call, response, MAX_REFUSAL_BYTES);
    const error = refusal(call.what, response.statusCode ?? 0, body, call.secrets ?? []);
    // A different engine has replaced the one whose version is cached.
    if (/client version \S+ is too/.test(body)) this.#version = undefined;
    return error;
  }

  #failed(call: EngineCall, error: unknown, bounds: Limit): Error {
    if (bounds.signal.aborted) return toError(bounds.signal.reason);
    const failure =
      error instanceof AgentError ? error : connectionFailure(call.what, this.#socketPath, toError(error));
    if (failure.code === "engine-unwell") this.#version = undefined;
    return failure;
  }
}

/** A pooled connection that the engine had closed. */
class StaleConnection extends Error {}

function isRefused(call: EngineCall, response: IncomingMessage): boolean {
  const status = response.statusCode ?? 0;
  return status >= 400 && call.accepts?.includes(status) !== true;
}

async function textOf(call: EngineCall, response: IncomingMessage, maxBytes: number): Promise<string> {
  const pieces: Buffer[] = [];
  let size = 0;
  for await (const piece of response as AsyncIterable<Buffer>) {
    size += piece.length;
    if (size > maxBytes) throw unwell(`${call.what}: the container engine's answer exceeds ${maxBytes} bytes`);
    pieces.push(piece);
  }
  if (!response.complete) throw unwell(`${call.what}: the container engine stopped in the middle of its answer`);
  return Buffer.concat(pieces).toString("utf8");
}
