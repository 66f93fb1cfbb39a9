import { createServer, type Socket } from "node:net";
import { join } from "node:path";
import type { Logger } from "pino";
import { SessionError, toError } from "../errors.ts";
import { listenAgain, listenOnSocket } from "../host/net/unix-socket.ts";
import { linesOf } from "../lib/text/lines.ts";
import { parseMessage } from "../protocol/channel/envelope.ts";
import {
  OVERLAY_LIMITS,
  OVERLAY_SOCKET,
  overlayMethods,
  overlayNotices,
  type OverlayMethods,
  type OverlayNotices,
} from "../protocol/overlay/overlay.ts";
import { RpcPeer, type Handlers } from "../protocol/channel/rpc.ts";

/** A control connection, as seen by the overlay. */
export type ControlPeer = RpcPeer<OverlayMethods, OverlayNotices>;

export interface ControlOptions {
  readonly runDir: string;
  readonly log: Logger;
  readonly handlers: Handlers<OverlayMethods>;
  /** Called when another connection receives the notifications, or none: the successor's if there is one, else the agent's. */
  readonly onSubscriber: (peer: ControlPeer | undefined) => void;
}

/** The control socket: receives calls, sends notifications. */
export interface Control {
  /** Reports whether a successor that received the table is connected. */
  readonly hasSuccessor: boolean;
  /** Closes the listening socket and notifies the agent. Connections stay open; the agent's only if there is no successor. */
  release(): void;
  /** Listens at the path again after the socket file was removed. @throws as `listenAgain` */
  serveAgain(): Promise<void>;
  /** Closes all connections, too. */
  close(): void;
}

interface Connection {
  readonly socket: Socket;
  readonly peer: ControlPeer;
}

const MODE = 0o660;
/** Maximum number of connections: the agent, its predecessor, a successor, and tools that read the state. */
const MAX_CONNECTIONS = 8;
/** Unsent bytes after which an agent that does not read is disconnected. */
const MAX_UNSENT_BYTES = 64 * 1024 * 1024;

/**
 * Serves `RUN/overlay.sock`, mode 0660. The newest connection that calls anything but `handover` is the agent's.
 * @throws {HostError} `socket-in-use` when another overlay answers there.
 */
export async function serveControl(options: ControlOptions): Promise<Control> {
  const connections = new Set<Socket>();
  let agent: Connection | undefined;
  let successor: Connection | undefined;

  const updateSubscriber = (): void => options.onSubscriber((successor ?? agent)?.peer);
  const called = (method: string, connection: Connection): void => {
    if (method === "handover") {
      successor = connection;
    } else if (method !== "drain" && agent?.socket !== connection.socket) {
      agent?.socket.destroy();
      agent = connection;
    } else return;
    updateSubscriber();
  };
  const left = (socket: Socket): void => {
    connections.delete(socket);
    const wasSubscriber = (successor ?? agent)?.socket === socket;
    if (agent?.socket === socket) agent = undefined;
    if (successor?.socket === socket) successor = undefined;
    if (wasSubscriber) updateSubscriber();
  };

  const server = createServer((socket) => {
    if (connections.size >= MAX_CONNECTIONS) {
      socket.destroy();
      return;
    }
    connections.add(socket);
    const peer: ControlPeer = new RpcPeer({
      local: overlayMethods,
      remote: overlayNotices,
      handlers: options.handlers,
      send(text) {
        if (socket.destroyed) return;
        socket.write(`${text}\n`);
        if (socket.writableLength > MAX_UNSENT_BYTES) socket.destroy();
      },
      onFault: (method, error) => options.log.error({ method, err: error }, "control call failed"),
    });
    socket
      .on("error", () => undefined)
      .on("close", () => {
        peer.close(new SessionError("disconnected", "the connection was closed"));
        left(socket);
      });
    readCalls(socket, peer, (method) => called(method, { socket, peer })).catch((error: unknown) => {
      options.log.warn({ reason: toError(error).message }, "control connection closed");
      socket.destroy();
    });
  });
  const path = join(options.runDir, OVERLAY_SOCKET);
  await listenOnSocket(server, path, MODE);

  // Closing removes the path before it returns, so that another process may take it immediately.
  return {
    get hasSuccessor() {
      return successor !== undefined;
    },
    release() {
      server.close();
      agent?.peer.notify("draining", { hasSuccessor: successor !== undefined });
      if (successor !== undefined) agent?.socket.destroySoon();
    },
    serveAgain: () => listenAgain(server, path, MODE),
    close() {
      server.close();
      for (const socket of connections) socket.destroySoon();
    },
  };
}

async function readCalls(socket: Socket, peer: ControlPeer, onCall: (method: string) => void): Promise<void> {
  for await (const line of linesOf(socket, OVERLAY_LIMITS.maxBytes)) {
    const message = parseMessage(line, OVERLAY_LIMITS);
    if (message.kind === "request") onCall(message.method);
    void peer.receive(message);
  }
  socket.end();
}
