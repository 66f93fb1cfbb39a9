import type { Server } from "node:http";
import { createServer, type Server as NetServer } from "node:net";
import { HostError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";

const CLOSE_GRACE_MS = 2000;
/** Time limits of a request, in milliseconds: its head, and all of it (a bandwidth test sends for two minutes). */
const HEADERS_MS = 10_000;
const REQUEST_MS = 150_000;
/** Interval at which Node checks for slow requests, in milliseconds. */
const CHECK_MS = 2000;

/** Options of HTTP and HTTPS servers. */
export const SERVER_OPTIONS = { connectionsCheckingInterval: CHECK_MS } as const;
/** A TLS handshake has the same time limit as the head of a request. */
export const TLS_OPTIONS = { ...SERVER_OPTIONS, handshakeTimeout: HEADERS_MS } as const;

/** Opens the port and returns its number. @throws {HostError} `listen-failed` */
export function listen(server: Server, host: string, port: number): Promise<number> {
  server.headersTimeout = HEADERS_MS;
  server.requestTimeout = REQUEST_MS;
  return bind(server, host, port);
}

/** Checks that a port is free by binding it for a moment. @throws {HostError} `listen-failed` */
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

/** Stops listening and waits for open connections; closes them after 2 seconds. */
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
