import { request as httpRequest } from "node:http";
import type { Socket } from "node:net";
import { SessionError, toError } from "../../errors.ts";
import { isLoopback } from "../../lib/net/proxy.ts";
import { dialRequestFor, type Dialler } from "./dial.ts";
import { defined } from "../../lib/defined.ts";

export interface HttpRequest {
  readonly url: string;
  readonly method: "GET" | "POST";
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  readonly pins: readonly string[];
  readonly knownAddresses?: readonly string[];
  readonly maxBytes: number;
  readonly timeoutMs: number;
  /** Minimum progress: fails if less than 4 KiB arrive within this time before the end; no limit if absent. */
  readonly stallMs?: number;
}

export interface HttpResponse {
  readonly status: number;
  readonly contentType: string;
  /** Milliseconds of a `Retry-After` header (RFC 9110 §10.2.3), if it is valid. */
  readonly retryAfterMs: number | undefined;
  readonly body: string;
}

/** Sends one HTTP request to the control plane on one connection; no redirects, no cache. */
export interface HttpClient {
  /** @throws {SessionError} the dialler's codes, `http-failed`, or `too-large`. */
  send(request: HttpRequest, signal: AbortSignal): Promise<HttpResponse>;
}

/** Creates an HTTP client over a dialler. Refuses plain `http:` except to loopback. */
export function hostHttpClient(dialler: Dialler, now: () => number): HttpClient {
  return {
    async send(request, signal) {
      const url = new URL(request.url);
      if (url.protocol !== "https:" && !isLoopback(url.hostname)) {
        throw new SessionError("insecure", `${url.origin}: plain HTTP is allowed to loopback only; use https`);
      }
      const stalled = new AbortController();
      const timeout = AbortSignal.timeout(request.timeoutMs);
      const limit = AbortSignal.any([signal, stalled.signal, timeout]);
      const { knownAddresses } = request;
      const { socket } = await dialler.dial(
        {
          ...dialRequestFor(url, request.pins, request.timeoutMs),
          plainOnlyLoopback: true,
          ...defined({ knownAddresses }),
        },
        AbortSignal.any([signal, stalled.signal]),
      );
      const stopWatching = watchProgress(socket, request.stallMs, stalled);
      try {
        return await exchange(request, url, socket, limit, now);
      } catch (error) {
        if (error instanceof SessionError) throw error;
        if (stalled.signal.aborted) throw toError(stalled.signal.reason);
        if (timeout.aborted && !signal.aborted) {
          const where = `${request.method} ${url.origin}${url.pathname}`;
          const late = `connected, and no complete answer came within ${request.timeoutMs / 1000} s`;
          throw new SessionError("http-failed", `${where}: ${late}`, { cause: error });
        }
        throw new SessionError(
          "http-failed",
          `${request.method} ${url.origin}${url.pathname}: ${toError(error).message}`,
          {
            cause: error,
          },
        );
      } finally {
        stopWatching();
        socket.destroy();
      }
    },
  };
}

const MIN_PROGRESS_BYTES = 4096;

/** Aborts `stalled` when too little arrives in time; the returned function stops watching. */
function watchProgress(socket: Socket, stallMs: number | undefined, stalled: AbortController): () => void {
  if (stallMs === undefined) return () => undefined;
  let before = socket.bytesRead;
  const timer = setInterval(() => {
    if (socket.bytesRead - before < MIN_PROGRESS_BYTES) {
      stalled.abort(new SessionError("http-stalled", `the answer made no progress for ${stallMs / 1000} s`));
    }
    before = socket.bytesRead;
  }, stallMs);
  return () => clearInterval(timer);
}

function exchange(
  request: HttpRequest,
  url: URL,
  socket: Socket,
  signal: AbortSignal,
  now: () => number,
): Promise<HttpResponse> {
  return new Promise((resolve, reject) => {
    const outgoing = httpRequest(url, {
      method: request.method,
      // With another protocol the header would name that scheme's default port.
      protocol: "http:",
      headers: { host: url.host, connection: "close", ...request.headers },
      createConnection: () => socket,
      signal,
    });
    outgoing.on("error", reject);
    // An answer that switches protocols emits neither a response nor an error.
    outgoing.once("close", () => reject(new Error("the connection was closed without an answer")));
    outgoing.once("response", (response) => {
      const chunks: Buffer[] = [];
      let size = 0;
      response.on("data", (chunk: Buffer) => {
        size += chunk.length;
        if (size > request.maxBytes) {
          reject(
            new SessionError("too-large", `${url.origin}${url.pathname} sent more than ${request.maxBytes} bytes`),
          );
          outgoing.destroy();
          return;
        }
        chunks.push(chunk);
      });
      response.once("error", reject);
      response.once("end", () => {
        if (!response.complete) return reject(new Error("the answer was cut off"));
        return resolve({
          status: response.statusCode ?? 0,
          contentType: response.headers["content-type"] ?? "",
          retryAfterMs: parseRetryAfter(response.headers["retry-after"], now()),
          body: Buffer.concat(chunks).toString("utf8"),
        });
      });
    });
    outgoing.end(request.body);
  });
}

/** Parses `Retry-After`, seconds or an HTTP date, to milliseconds; undefined if absent or invalid. */
export function parseRetryAfter(value: string | undefined, now: number): number | undefined {
  if (value === undefined) return undefined;
  if (/^\d{1,9}$/.test(value)) return Number(value) * 1000;
  // Date.parse accepts almost any text; every form of an HTTP date starts with the day (RFC 9110 §5.6.7).
  const at = /^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)/.test(value) ? Date.parse(value) : Number.NaN;
  return Number.isNaN(at) ? undefined : Math.max(0, at - now);
}
