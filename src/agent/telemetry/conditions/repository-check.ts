import { request as requestHttp } from "node:http";
import type { Socket } from "node:net";
import { errnoOf, SessionError, toError } from "../../../errors.ts";
import { dialRequestFor, type Dialler } from "../../../host/net/dial.ts";

/** Whether the repository answers, or what stood in the way. */
export type RepositoryAnswer =
  | "ok"
  | "name-not-resolved"
  | "port-not-reachable"
  | "certificate-refused"
  | "client-unknown"
  | "unavailable";

/** The repository, and how it is reached. */
export interface Repository {
  readonly url: URL;
  /** Keys that are trusted besides those of a valid chain. */
  readonly pins: readonly string[];
  /** Goes through the proxy where one is set. */
  readonly dialler: Dialler;
}

const TIMEOUT_MS = 10_000;

/** Asks for the headers of the URL; every answer except a refusal or a fault of the server is `ok`. */
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
    // TLS is done already, so the library is given a plain protocol and the finished socket.
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
