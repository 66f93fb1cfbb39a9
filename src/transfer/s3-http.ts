import { Agent, request as httpRequest, type ClientRequest, type IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { Duplex, Readable } from "node:stream";
import { SessionError, toError } from "../errors.ts";

/** Opens a connection to a host, with TLS if requested, after checking its address. */
export type Connect = (
  target: { readonly host: string; readonly port: number; readonly isTls: boolean },
  signal: AbortSignal,
) => Promise<Socket>;

/** A signed request of the SDK. */
export interface SignedRequest {
  readonly protocol: string;
  readonly hostname: string;
  readonly port?: number | undefined;
  readonly path: string;
  readonly query?: Readonly<Record<string, string | readonly string[] | null>> | undefined;
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: unknown;
}

interface Answer {
  readonly statusCode: number;
  readonly reason: string | undefined;
  readonly headers: Record<string, string>;
  readonly body: Readable;
}

export interface S3HttpOptions {
  readonly connect: Connect;
  readonly maxSockets: number;
  /** Time limit of a silent connection, in milliseconds. */
  readonly stallMs: number;
}

/** Status codes of a response with an object: all of it, or a range. */
const OBJECT: ReadonlySet<number> = new Set([200, 206]);
/** Time limit of waiting for the server's `100 Continue` (RFC 9110 §10.1.1). */
const CONTINUE_MS = 1000;

/** Limit of a response that is no object: XML of a few KiB, which the SDK reads into memory. */
const MAX_XML_BYTES = 1024 * 1024;

/** HTTP handler of the SDK over pooled connections of our own. */
export class S3Http {
  readonly metadata = { handlerProtocol: "http/1.1" };
  readonly #stallMs: number;
  readonly #agents: Readonly<Record<"http:" | "https:", Agent>>;
  readonly #ending = new AbortController();

  constructor(options: S3HttpOptions) {
    this.#stallMs = options.stallMs;
    const agent = (isTls: boolean): Agent => guardedAgent(options, isTls, this.#ending.signal);
    this.#agents = { "http:": agent(false), "https:": agent(true) };
  }

  /**
   * Sends one request and returns the head of the response; the caller must read or destroy an object's body.
   * @throws {SessionError} `s3-failed` for an oversized response that is no object; errors of the connection
   */
  async handle(
    request: SignedRequest,
    { abortSignal }: { readonly abortSignal?: unknown } = {},
  ): Promise<{ response: Answer }> {
    const isTls = request.protocol === "https:";
    const own = abortSignal instanceof AbortSignal ? [abortSignal] : [];
    const body = request.body instanceof Readable ? request.body : undefined;
    const outgoing = httpRequest({
      protocol: "http:",
      agent: this.#agents[isTls ? "https:" : "http:"],
      host: request.hostname.replace(/^\[|\]$/g, ""),
      port: request.port ?? (isTls ? 443 : 80),
      method: request.method,
      path: pathOf(request),
      headers: { ...request.headers, ...(body === undefined ? {} : { expect: "100-continue" }) },
      signal: AbortSignal.any([this.#ending.signal, ...own]),
      timeout: this.#stallMs,
    });
    outgoing.once("timeout", () => outgoing.destroy(new Error("the connection stood still")));
    const answered = answerOf(outgoing);
    if (body === undefined) outgoing.end(plainBody(request.body));
    else await send(outgoing, body, answered);
    const response = await answered;
    const isObject = request.query?.["x-id"] === "GetObject" && OBJECT.has(response.statusCode ?? 0);
    const content = isObject ? response : Readable.from([await xmlIn(response)]);
    return {
      response: {
        statusCode: response.statusCode ?? 0,
        reason: response.statusMessage,
        headers: Object.fromEntries(
          Object.entries(response.headers).map(([name, value]) => [
            name,
            Array.isArray(value) ? value.join(", ") : (value ?? ""),
          ]),
        ),
        body: content,
      },
    };
  }

  /** Aborts all requests and closes pooled connections. */
  destroy(): void {
    this.#ending.abort();
    for (const agent of Object.values(this.#agents)) agent.destroy();
  }

  // The SDK passes settings of its own handler here; this one has none.
  updateHttpClientConfig(): void {}

  httpHandlerConfigs(): Record<string, never> {
    return {};
  }
}

/** Reads a response that is no object. */
async function xmlIn(response: IncomingMessage): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of response as AsyncIterable<Buffer>) {
    bytes += piece.length;
    // Leaving the loop destroys the response and its connection.
    if (bytes > MAX_XML_BYTES) throw new SessionError("s3-failed", `S3 answered with more than ${MAX_XML_BYTES} bytes`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

/** HTTP agent that opens its connections with `connect`. */
function guardedAgent({ connect, maxSockets }: S3HttpOptions, isTls: boolean, signal: AbortSignal): Agent {
  const agent = new Agent({ keepAlive: true, maxSockets });
  agent.createConnection = (options, agentDone = () => undefined) => {
    const open = async (): Promise<Socket | Error> => {
      try {
        return await connect({ host: String(options.host), port: Number(options.port), isTls }, signal);
      } catch (error) {
        return toError(error);
      }
    };
    void open().then((opened) => {
      // The type requires a socket beside the error; it is not used.
      if (opened instanceof Error) agentDone(opened, new Duplex());
      else agentDone(null, opened);
    });
    return undefined;
  };
  return agent;
}

function answerOf(outgoing: ClientRequest): Promise<IncomingMessage> {
  const answered = new Promise<IncomingMessage>((resolve, reject) => {
    outgoing.once("response", resolve);
    outgoing.on("error", reject);
    outgoing.once("close", () => reject(new Error("the connection was closed without an answer")));
  });
  answered.catch(() => undefined);
  return answered;
}

/**
 * Sends a body once the server asks for it or a timeout passes. If the server responds first, sending stops: otherwise the server would
 * reset the connection and its response would be lost.
 */
async function send(outgoing: ClientRequest, body: Readable, answered: Promise<IncomingMessage>): Promise<void> {
  const state = { isAnswered: false };
  const end = (): void => void (state.isAnswered = true);
  const over = answered.then(end, end);
  const wanted = new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, CONTINUE_MS);
    const begin = (): void => {
      clearTimeout(timer);
      resolve();
    };
    outgoing.once("continue", begin);
    void over.then(begin);
  });
  outgoing.flushHeaders();
  await wanted;
  try {
    for await (const piece of body as AsyncIterable<Uint8Array>) {
      if (state.isAnswered) break;
      if (outgoing.write(piece)) continue;
      const drained = new Promise<void>((resolve) => outgoing.once("drain", resolve));
      await Promise.race([over, drained]);
    }
  } catch (error) {
    outgoing.destroy(toError(error));
    return;
  }
  if (!state.isAnswered) outgoing.end();
  else answered.then((response) => response.once("close", () => outgoing.destroy())).catch(() => undefined);
}

function plainBody(body: unknown): string | Uint8Array | undefined {
  if (body === undefined || body === null || body === "") return undefined;
  if (typeof body === "string" || body instanceof Uint8Array) return body;
  throw new TypeError("the body is of a kind that is never sent");
}

/** Returns path and query, encoded as they were signed (RFC 3986 §2.3). */
function pathOf({ path, query = {} }: SignedRequest): string {
  const encoded = Object.keys(query)
    .sort()
    .flatMap((name) => {
      const value = query[name];
      const key = percent(name);
      if (value === null || value === undefined) return [key];
      return typeof value === "string" ? [`${key}=${percent(value)}`] : value.map((one) => `${key}=${percent(one)}`);
    });
  return encoded.length === 0 ? path : `${path}?${encoded.join("&")}`;
}

const percent = (text: string): string =>
  encodeURIComponent(text).replaceAll(/[!'()*]/g, (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`);
