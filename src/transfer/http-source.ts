import { InputError, SessionError } from "../errors.ts";
import type { ByteStream } from "../host/net/byte-stream.ts";
import { proxyAuthorization } from "../host/net/dial.ts";
import type { GuardedConnector, GuardedTarget } from "../host/net/guarded-connect.ts";
import { parseRetryAfter } from "../host/net/http-client.ts";
import { REDIRECTS, redirectTarget } from "../host/net/redirect-target.ts";
import { shownUrl } from "../protocol/triggers/data-store.ts";
import { askForHead, type Head } from "./head.ts";

/** A response with its head read and its body still in the paused stream. */
export interface Answer extends Head {
  readonly stream: ByteStream;
  readonly url: URL;
}

export interface AskOptions {
  readonly connector: GuardedConnector;
  readonly headers: Readonly<Record<string, string>>;
  readonly maxRedirects: number;
  readonly waitMs: number;
  readonly bufferBytes: number;
}

/**
 * Sends a GET and follows redirects; checks each address.
 * @throws {InputError} `bad-redirect`, `forbidden-address`; {SessionError} the connector's and `askForHead`'s codes
 */
export async function ask(from: URL, options: AskOptions, signal: AbortSignal): Promise<Answer> {
  let url = from;
  for (let redirects = 0; ; redirects += 1) {
    const answer = await askOnce(url, options, signal);
    if (!REDIRECTS.has(answer.status)) return answer;
    answer.stream.destroy();
    if (redirects >= options.maxRedirects) {
      throw new InputError("bad-redirect", `there are more than ${options.maxRedirects} redirects`);
    }
    url = redirectTarget(url, answer.headers.location);
  }
}

async function askOnce(url: URL, options: AskOptions, signal: AbortSignal): Promise<Answer> {
  const { connector, headers, waitMs, bufferBytes } = options;
  const { connection: stream, proxy } = await connector.stream(targetOf(url), bufferBytes, signal);
  try {
    const head = await askForHead(stream, { ...requestLine(url, proxy, headers), waitMs }, signal);
    return { ...head, stream, url };
  } catch (error) {
    stream.destroy();
    throw error;
  }
}

/** Returns host and port of a URL's server. */
export function targetOf(url: URL): GuardedTarget {
  const isTls = url.protocol === "https:";
  return { host: url.hostname, port: url.port === "" ? (isTls ? 443 : 80) : Number(url.port), isTls };
}

/** Returns target and headers of a request, in absolute form for a proxy (RFC 9112 §3.2). */
export function requestLine(
  url: URL,
  proxy: URL | undefined,
  headers: Readonly<Record<string, string>>,
): { readonly path: string; readonly headers: Readonly<Record<string, string>> } {
  const path = `${url.pathname}${url.search}`;
  const common = { host: url.host, "user-agent": "holdfast", ...headers };
  if (proxy === undefined) return { path, headers: common };
  return { path: `${url.origin}${path}`, headers: { ...common, ...proxyAuthorization(proxy) } };
}

/** Converts a status to an error: `busy` if a retry may succeed, else `refused`. */
export function statusError({ status, headers, url }: Pick<Answer, "status" | "headers" | "url">, now: number): Error {
  const message = `${shownUrl(url.href)} answered ${status}`;
  if (status !== 408 && status !== 429 && status < 500) return new InputError("refused", message);
  const retryAfterMs = parseRetryAfter(headers["retry-after"], now);
  return new SessionError("busy", message, retryAfterMs === undefined ? {} : { details: { retryAfterMs } });
}
