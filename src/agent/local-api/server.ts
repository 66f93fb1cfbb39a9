import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Logger } from "pino";
import { AgentError, HostError, InternalError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { keepSockets } from "../../host/net/kept-sockets.ts";
import { readPidFile, writePidFile } from "../../host/process/pid-file.ts";
import { lockRunDirectory, type RunLock } from "../../host/process/run-lock.ts";
import {
  checkRunDirectory,
  listenAgain,
  listenOnSocket,
  makeRunDirectory,
  probeSocket,
} from "../../host/net/unix-socket.ts";
import { ADMIN_SOCKET, READ_SOCKET, socketPath } from "../../protocol/local/api.ts";
import type { LocalProvider } from "./provider.ts";
import { failureOf, sendJson, statusOf } from "./replies.ts";
import { routesAt } from "./routes.ts";
import { upgradeStream } from "./upgrade.ts";
import { defined } from "../../lib/defined.ts";

/** Limits of what local callers may hold open. */
export interface LocalApiLimits {
  /** For each socket, so that readers cannot exclude an administrator. */
  readonly maxConnections: number;
  readonly headersTimeoutMs: number;
  readonly requestTimeoutMs: number;
}

export interface LocalApiOptions {
  readonly runDir: string;
  readonly provider: LocalProvider;
  readonly log: Logger;
  readonly clock: Clock;
  readonly limits?: Partial<LocalApiLimits>;
  /** Called once for each reason for which removed sockets cannot be served again. */
  readonly onLost?: (error: Error) => void;
  /** Called when they are served again. */
  readonly onServed?: () => void;
}

export interface LocalApi {
  /** Ends every exchange and removes the sockets. */
  close(): Promise<void>;
}

const DEFAULT_LIMITS: LocalApiLimits = { maxConnections: 16, headersTimeoutMs: 5000, requestTimeoutMs: 10_000 };

/**
 * Serves the local API (HTTP/1.1 with JSON) on `RUN/agent.sock` (read only, mode 0660) and `RUN/admin.sock` (everything, mode 0600).
 * @throws {HostError} `socket-in-use` naming the process that uses it; {InputError} `path-too-long`, `unsafe-directory`.
 */
export async function serveLocalApi(options: LocalApiOptions): Promise<LocalApi> {
  const { runDir, clock, log, onLost, onServed } = options;
  const stop = new AbortController();
  const socket = (name: string, mode: number, isAdmin: boolean) => {
    const path = socketPath(runDir, name);
    return { name, mode, path, server: localServer(options, isAdmin, stop.signal) };
  };
  const sockets = [socket(READ_SOCKET, 0o660, false), socket(ADMIN_SOCKET, 0o600, true)];
  await makeRunDirectory(runDir);
  let lock: RunLock | undefined;
  const close = async (): Promise<void> => {
    stop.abort(new InternalError("stopped", "the agent stops"));
    await Promise.all(sockets.map(({ server }) => closeServer(server)));
    lock?.release();
    lock = undefined;
  };
  try {
    lock = lockRunDirectory(runDir, "agent");
    for (const { server, path, mode } of sockets) await listenOnSocket(server, path, mode);
  } catch (error) {
    await close();
    throw await namingTheOther(toError(error), runDir);
  }
  const kept = keepSockets({
    clock,
    runDir,
    names: sockets.map(({ name }) => name),
    async serveAgain(gone) {
      // The lock file may have been removed too, and another agent would not find it locked.
      lock?.release();
      lock = undefined;
      lock = lockRunDirectory(runDir, "agent");
      for (const { name, server, path, mode } of sockets) if (gone.has(name)) await listenAgain(server, path, mode);
      await writePidFile(runDir, "agent");
    },
    onFault(error) {
      log.error({ err: error, runDir }, "the local API cannot be served");
      onLost?.(error);
    },
    onServed() {
      log.warn({ runDir }, "the sockets of the local API were missing and are served again");
      onServed?.();
    },
  });
  return {
    async close() {
      await kept.close();
      await close();
    },
  };
}

/**
 * Checks that the local API can be served, without changing anything.
 * @throws as `serveLocalApi`.
 */
export async function checkLocalApi(runDir: string): Promise<void> {
  const paths = [READ_SOCKET, ADMIN_SOCKET].map((name) => socketPath(runDir, name));
  checkRunDirectory(runDir);
  for (const path of paths) {
    if ((await probeSocket(path)) === "live") throw await inUse(runDir);
  }
}

function localServer(options: LocalApiOptions, isAdmin: boolean, stopped: AbortSignal): Server {
  const limits = { ...DEFAULT_LIMITS, ...options.limits };
  const server = createServer(
    {
      headersTimeout: limits.headersTimeoutMs,
      requestTimeout: limits.requestTimeoutMs,
      // The timer also runs without connections; a slow caller occupies one of few places no longer than this.
      connectionsCheckingInterval: 4 * limits.headersTimeoutMs,
      keepAliveTimeout: limits.headersTimeoutMs,
      maxHeaderSize: 8192,
    },
    (request, response) => void exchange(options, isAdmin, stopped, request, response),
  );
  server.maxConnections = limits.maxConnections;
  // The other socket upgrades nothing, so the request is answered like any other.
  if (isAdmin)
    server.on("upgrade", (request, socket, head) => void upgradeStream(options, request, socket, head, stopped));
  server.on("drop", () => options.log.warn({ isAdmin, limit: limits.maxConnections }, "local connection refused"));
  // Without a listener an error of the listening socket would end the process.
  server.on("error", (error) => options.log.error({ err: error, isAdmin }, "local API failed"));
  return server;
}

async function exchange(
  { provider, clock, log }: LocalApiOptions,
  isAdmin: boolean,
  stopped: AbortSignal,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const left = new AbortController();
  response.once("close", () => left.abort(new HostError("cancelled", "the caller left")));
  response.on("error", () => left.abort(new HostError("cancelled", "the caller left")));
  const signal = AbortSignal.any([left.signal, stopped]);
  try {
    const url = URL.parse(`http://local${request.url ?? "/"}`);
    if (url === null) return refuse(response, 404, request);
    const found = routesAt(url.pathname);
    const route = found.find(({ method }) => method === request.method);
    if (route === undefined) return refuse(response, found.length === 0 ? 404 : 405, request);
    if (route.isAdmin && !isAdmin) return refuse(response, 403, request);
    await route.answer({ request, response, url, provider, clock, signal });
  } catch (thrown) {
    if (signal.aborted) {
      response.destroy();
      return;
    }
    const error = toError(thrown);
    if (!(error instanceof AgentError)) log.error({ err: error, url: request.url }, "local request failed");
    if (!response.headersSent) fail(response, error);
    else if (!response.writableEnded) response.destroy(); // a list that is cut short must not look complete
  }
}

/** Sends the error and closes: the unread rest of a body must not be taken for the next request. */
function fail(response: ServerResponse, error: Error): void {
  response.setHeader("connection", "close");
  sendJson(response, statusOf(error), { error: failureOf(error) });
}

function refuse(response: ServerResponse, status: 403 | 404 | 405, request: IncomingMessage): void {
  const what = `${request.method ?? ""} ${request.url ?? ""}`.slice(0, 200);
  const [code, message] = {
    403: ["access-denied", `${what} is served on ${ADMIN_SOCKET} only`],
    404: ["not-found", `the local API has no ${what}`],
    405: ["not-supported", `the local API does not take ${what}`],
  }[status] as [string, string];
  response.setHeader("connection", "close");
  sendJson(response, status, { error: { code, message } });
}

async function namingTheOther(error: Error, runDir: string): Promise<Error> {
  return error instanceof HostError && error.code === "socket-in-use" ? inUse(runDir, error) : error;
}

async function inUse(runDir: string, cause?: Error): Promise<HostError> {
  const pid = await readPidFile(runDir, "agent");
  const who = pid === undefined ? "another agent" : `the agent with process id ${pid}`;
  return new HostError(
    "socket-in-use",
    `${who} already serves ${runDir}: stop it, or give this one another run directory with --run`,
    { cause, details: { runDir, ...defined({ pid }) } },
  );
}

function closeServer(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}
