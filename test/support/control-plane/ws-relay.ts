import { createServer, request, type IncomingMessage } from "node:http";
import { onTestFinished } from "vitest";
import { WebSocket, WebSocketServer, type RawData } from "ws";
import { bytesOf } from "../../../src/controller/channel/session.ts";

/** One session through the relay. */
export interface RelayedSession {
  /** Text frames as received, from the controller and from the node. */
  readonly fromController: string[];
  readonly fromNode: string[];
  /** The close codes of both sides, once known. */
  readonly closed: { node?: number; controller?: number };
  toNode(text: string): void;
  toController(text: string): void;
  /** Closes towards the node with this code as if by the controller. */
  closeNode(code: number, reason: string): void;
  /** Destroys both sides as a broken network does. */
  cut(): void;
}

/** A relay on plain loopback that reads every frame and can add some; HTTP passes unchanged. */
export interface WsRelay {
  readonly port: number;
  readonly sessions: RelayedSession[];
  /** Called with each new session before its first frame is passed; true hides it from the controller. */
  intercept: ((session: RelayedSession) => boolean) | undefined;
  /** Decides whether a frame is passed on. */
  passes: (from: "node" | "controller", text: string, session: RelayedSession) => boolean;
}

/** Starts a relay from a local port to another; it ends with the test, or by `onFinished`. */
export async function startWsRelay(
  port: number,
  target: number,
  onFinished: (end: () => void) => void = onTestFinished,
): Promise<WsRelay> {
  const relay: WsRelay = { port, sessions: [], intercept: undefined, passes: () => true };
  const server = createServer((incoming, outgoing) => {
    const onward = request(
      { host: "127.0.0.1", port: target, method: incoming.method, path: incoming.url, headers: incoming.headers },
      (answer) => {
        outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(outgoing);
      },
    );
    onward.on("error", () => outgoing.destroy());
    incoming.pipe(onward);
  });
  const sockets = new WebSocketServer({ server, handleProtocols: () => "holdfast.v1", perMessageDeflate: false });
  sockets.on("connection", (node, incoming) => join(relay, node, incoming, target));
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
  onFinished(() => {
    for (const client of sockets.clients) client.terminate();
    server.closeAllConnections();
    server.close();
  });
  return relay;
}

function join(relay: WsRelay, node: WebSocket, incoming: IncomingMessage, target: number): void {
  const upstream: { socket?: WebSocket } = {};
  const waiting: string[] = [];
  const toController = (text: string): void => {
    if (upstream.socket?.readyState === WebSocket.OPEN) upstream.socket.send(text);
    else waiting.push(text);
  };
  const session: RelayedSession = {
    fromController: [],
    fromNode: [],
    closed: {},
    toNode: (text) => node.send(text),
    toController,
    closeNode: (code, reason) => node.close(code, reason),
    cut: () => {
      node.terminate();
      upstream.socket?.terminate();
    },
  };
  relay.sessions.push(session);
  node
    .on("error", () => undefined)
    .on("close", (code, reason) => {
      session.closed.node = code;
      close(upstream.socket, code, reason);
    });
  node.on("message", (data) => {
    const text = textOf(data);
    session.fromNode.push(text);
    if (relay.passes("node", text, session)) toController(text);
  });
  if (relay.intercept?.(session) === true) return;
  const controller = new WebSocket(`ws://127.0.0.1:${target}${incoming.url ?? ""}`, "holdfast.v1", {
    perMessageDeflate: false,
  });
  upstream.socket = controller;
  controller.on("open", () => waiting.splice(0).forEach(toController));
  controller
    .on("error", () => undefined)
    .on("close", (code, reason) => {
      session.closed.controller = code;
      close(node, code, reason);
    });
  controller.on("message", (data) => {
    const text = textOf(data);
    session.fromController.push(text);
    if (relay.passes("controller", text, session)) node.send(text);
  });
}

function close(socket: WebSocket | undefined, code: number, reason: Buffer): void {
  // 1005 and 1006 mean that no code was received, and cannot be sent.
  if (code === 1005 || code === 1006) socket?.terminate();
  else socket?.close(code, reason);
}

function textOf(data: RawData): string {
  return Buffer.from(bytesOf(data)).toString();
}
