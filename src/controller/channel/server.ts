import type { Server } from "node:http";
import { createServer, type Server as NetServer } from "node:net";
import { HostError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";

const CLOSE_GRACE_MS = 2000;
/** How long a request may take to arrive: its head, and all of it (a bandwidth test sends for two minutes). */
const HEADERS_MS = 10_000;
const REQUEST_MS = 150_000;
/** Interval at which Node checks for requests that take too long. */
const CHECK_MS = 2000;

/** The options of both kinds of servers. */
export const SERVER_OPTIONS = { connectionsCheckingInterval: CHECK_MS } as const;
/** A TLS handshake has as long as the head of a request. */
export const TLS_OPTIONS = { ...SERVER_OPTIONS, handshakeTimeout: HEADERS_MS } as const;

/** Opens the port and answers the one that was given. @throws {HostError} `listen-failed`. */
export function listen(server: Server, host: string, port: number): Promise<number> {
  server.headersTimeout = HEADERS_MS;
  server.requestTimeout = REQUEST_MS;
  return bind(server, host, port);
}

/** Finds out whether a port can be had, by taking it and giving it back. @throws {HostError} `listen-failed`. */
export async function checkPort(host: string, port: number): Promise<void> {
  const holder = createServer((socket) => socket.destroy());
  await bind(holder, host, port);
  await new Promise<void>((resolve) => {
    holder.close(() => resolve());
  });
}

function bind(server: NetServer, host: string, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const onError = (error: Error): void => {
      const message = `cannot listen on ${host}:${port}: ${error.message}`;
      reject(new HostError("listen-failed", message, { cause: error }));
    };
    server.once("error", onError);
    server.listen(port, host, () => {
      server.off("error", onError);
      const address = server.address();
      resolve(typeof address === "object" && address !== null ? address.port : port);
    });
  });
}

/** Stops listening and waits for what is open; after a moment it is cut. */
export function closeServer(server: Server, clock: Clock): Promise<void> {
  return new Promise((resolve) => {
    const cancel = clock.after(CLOSE_GRACE_MS, () => server.closeAllConnections());
    server.close(() => {
      cancel();
      resolve();
    });
    server.closeIdleConnections();
  });
}
