import { connect, createServer, type Socket } from "node:net";
import { once } from "node:events";
import { join } from "node:path";
import type { Logger } from "pino";
import { z } from "zod";
import { AgentError, HostError, toError } from "../../errors.ts";
import { hostFiles } from "../../host/files/files.ts";
import { listenOnSocket } from "../../host/net/unix-socket.ts";
import { serialQueue } from "../../lib/async/serial-queue.ts";
import { linesOf } from "../../lib/text/lines.ts";
import type { StoreDatabase } from "../store/database.ts";

/** Socket in the data directory, which only the controller's user and root can reach. */
const SOCKET = "backup.sock";
/** The copy that one caller reads at a time. */
const SNAPSHOT = "snapshot.db";
const MAX_CALLERS = 4;
const MAX_ANSWER_BYTES = 64 * 1024;

const Answer = z.union([
  z.object({ path: z.string() }),
  z.object({ error: z.object({ code: z.string(), message: z.string() }) }),
]);

/**
 * Copies a SQLite store that is in use, for `holdfast controller backup`: each client of the socket receives the path of a copy, which is
 * removed when the connection ends. Without a socket the controller runs without this service. Returns a function that stops it.
 */
export async function serveSnapshots(
  dataDir: string,
  database: Pick<StoreDatabase, "copyTo">,
  log: Logger,
): Promise<() => Promise<void>> {
  const files = hostFiles();
  const path = join(dataDir, SNAPSHOT);
  const discard = async (): Promise<void> => {
    for (const suffix of ["", "-wal", "-shm"]) await files.remove(path + suffix);
  };
  const sockets = new Set<Socket>();
  const inTurn = serialQueue();
  const serve = async (socket: Socket): Promise<void> => {
    if (socket.destroyed) return;
    const closed = once(socket, "close");
    try {
      await discard();
      await files.writeAtomic(path, "", 0o600);
      await database.copyTo?.(path);
      socket.write(`${JSON.stringify({ path })}\n`);
    } catch (thrown) {
      const error = toError(thrown);
      log.warn({ err: error }, "cannot copy the store");
      const code = error instanceof AgentError ? error.code : "internal";
      socket.end(`${JSON.stringify({ error: { code, message: error.message } })}\n`);
    }
    if (!socket.destroyed) await closed;
    await discard();
  };
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => sockets.delete(socket));
    socket.resume();
    inTurn(() => serve(socket)).catch((error: unknown) => log.warn({ err: toError(error) }, "cannot serve a backup"));
  });
  server.maxConnections = MAX_CALLERS;
  try {
    await discard();
    await listenOnSocket(server, join(dataDir, SOCKET), 0o600);
  } catch (error) {
    log.warn({ err: toError(error) }, "cannot listen for backups; stop the controller to make one");
  }
  return async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
    await inTurn(async () => undefined);
  };
}

/** A copy of a store that a running controller has made. */
export interface Snapshot {
  readonly path: string;
  /** Lets the controller remove it. */
  release(): void;
}

/**
 * Asks the controller that uses a data directory for a copy of its store.
 * @throws {HostError} `state-locked` if none answers, or the reason why there is no copy
 */
export async function requestSnapshot(dataDir: string): Promise<Snapshot> {
  const socket = connect(join(dataDir, SOCKET));
  socket.on("error", () => undefined);
  try {
    await once(socket, "connect");
    // The connection outlives the answer: the copy is removed when it ends.
    for await (const line of linesOf(socket.iterator({ destroyOnReturn: false }), MAX_ANSWER_BYTES)) {
      const answer = Answer.parse(JSON.parse(Buffer.from(line).toString("utf8")));
      if ("error" in answer) throw new HostError(answer.error.code, answer.error.message);
      return { path: answer.path, release: () => socket.destroy() };
    }
    throw new HostError("state-locked", "the controller ended before it had made a copy of its store");
  } catch (error) {
    socket.destroy();
    if (error instanceof HostError) throw error;
    const message = `the store in ${dataDir} is held by a process that makes no copy of it; end that controller first`;
    throw new HostError("state-locked", message, { cause: error });
  }
}
