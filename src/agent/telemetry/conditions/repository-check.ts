import { request as requestHttp } from "node:http";
import type { Socket } from "node:net";
import { errnoOf, SessionError, toError } from "../../../errors.ts";
import { dialRequestFor, type Dialler } from "../../../host/net/dial.ts";

/** Result of the check: the repository answers, or the reason why not. */
export type RepositoryAnswer =
  | "ok"
  | "name-not-resolved"
  | "port-not-reachable"
  | "certificate-refused"
  | "client-unknown"
  | "unavailable";

/** The repository and the means to reach it. */
export interface Repository {
  readonly url: URL;
  /** Keys trusted in addition to a valid certificate chain. */
  readonly pins: readonly string[];
  /** Uses the proxy if one is configured. */
  readonly dialler: Dialler;
}

const TIMEOUT_MS = 10_000;

/** Sends a HEAD request; every answer except a refusal or a server error is `ok`. */
export async function checkRepository(
  { url, pins, dialler }: Repository,
  signal: AbortSignal,
): Promise<RepositoryAnswer> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]);
  let socket: Socket | undefined;
  try {
    ({ socket } = await dialler.dial(dialRequestFor(url, pins, TIMEOUT_MS), limit));
    return answerOf(await statusOf(url, socket, limit));
  } catch (error) {
    signal.throwIfAborted();
    return failureOf(toError(error));
  } finally {
    socket?.destroy();
  }
}

function statusOf(url: URL, socket: Socket, signal: AbortSignal): Promise<number> {
  return new Promise((resolve, reject) => {
    // TLS is complete already, so the library gets a plain protocol and the finished socket.
    const options = { method: "HEAD", protocol: "http:", headers: { host: url.host, connection: "close" } };
    const call = requestHttp(url, { ...options, createConnection: () => socket, signal }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    call.on("error", reject).end();
  });
}

function answerOf(status: number): RepositoryAnswer {
  if (status === 401 || status === 403) return "client-unknown";
  return status >= 500 ? "unavailable" : "ok";
}

function failureOf(error: Error): RepositoryAnswer {
  const code = error instanceof SessionError ? error.code : (errnoOf(error) ?? "");
  if (code === "resolve-failed") return "name-not-resolved";
  return code === "tls-untrusted" ? "certificate-refused" : "port-not-reachable";
}
