import { createServer, type IncomingMessage, type Server } from "node:http";
import type { Socket } from "node:net";
import { once } from "node:events";
import { onTestFinished } from "vitest";
import { WebSocketServer, type WebSocket } from "ws";
import type { ServerProofClaims } from "../../../src/protocol/documents/claims.ts";
import { SESSION_PATH, SUBPROTOCOL } from "../../../src/protocol/channel/envelope.ts";
import { peekClaims, signJws, type Signer } from "../../../src/protocol/channel/jws.ts";
import { ISS, newSid, UID } from "./signing.ts";

/** A node that connects, with the possible answers. */
export interface Arrival {
  readonly socket: Socket;
  /** Answers with raw bytes, and closes the connection. */
  readonly answerRaw: (text: string) => void;
  /** Completes the upgrade. */
  readonly accept: () => Promise<WebSocket>;
}

/** The contents of the node's `session.hello`. */
export interface Hello {
  readonly id: number;
  readonly cnonce: string;
  readonly nonce: string;
}

/** A WebSocket server on loopback that runs a script for each connection. */
export class HostileControlPlane {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  /** Number of connections so far. */
  arrivals = 0;

  private constructor(script: (arrival: Arrival) => void) {
    const sockets = new WebSocketServer({ noServer: true, handleProtocols: () => SUBPROTOCOL });
    this.#server = createServer((_request, response) => response.end("<html>hello</html>"));
    this.#server.on("connection", (socket) => {
      this.arrivals += 1;
      this.#sockets.add(socket);
      socket.on("error", () => undefined).once("close", () => this.#sockets.delete(socket));
      // HTTP servers keep half-closed connections.
      socket.once("end", () => socket.end());
    });
    this.#server.on("upgrade", (request: IncomingMessage, socket: Socket, head: Buffer) => {
      script({
        socket,
        answerRaw: (text) => socket.end(text),
        accept: () =>
          new Promise((resolve) => {
            sockets.handleUpgrade(request, socket, head, (webSocket) => {
              webSocket.on("error", () => undefined);
              resolve(webSocket);
            });
          }),
      });
    });
  }

  static async start(script: (arrival: Arrival) => void): Promise<HostileControlPlane> {
    const plane = new HostileControlPlane(script);
    plane.#server.listen(0, "127.0.0.1");
    await once(plane.#server, "listening");
    onTestFinished(() => plane.close());
    return plane;
  }

  get url(): string {
    const address = this.#server.address();
    if (address === null || typeof address === "string") throw new Error("not listening");
    return `ws://127.0.0.1:${address.port}${SESSION_PATH}`;
  }

  get openSockets(): number {
    return this.#sockets.size;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    if (!this.#server.listening) return;
    this.#server.close();
    await once(this.#server, "close");
  }
}

export const NONCE = "n".repeat(43);

/** Sends the challenge and waits for the node's hello. */
export async function challenge(socket: WebSocket): Promise<Hello> {
  const answer = once(socket, "message") as Promise<[Buffer]>;
  socket.send(JSON.stringify({ jsonrpc: "2.0", method: "session.challenge", params: { nonce: NONCE, protocol: 1 } }));
  const [data] = await answer;
  const { id, params } = JSON.parse(data.toString("utf8")) as { id: number; params: { proof: string } };
  const { cnonce, nonce } = peekClaims("holdfast-node-proof+jwt", params.proof);
  return { id, cnonce, nonce };
}

/** Answers a hello; `changes` falsify the proof. */
export async function prove(
  socket: WebSocket,
  { id, cnonce }: Hello,
  key: Signer,
  changes: Partial<ServerProofClaims> = {},
): Promise<void> {
  const proof = await signJws(
    "holdfast-server-proof+jwt",
    {
      iss: ISS,
      aud: UID,
      nonce: cnonce,
      sid: newSid(),
      iat: 1000,
      versions: { keys: 1, node: 0, cluster: 0, domain: 0 },
      ...changes,
    },
    key,
  );
  socket.send(JSON.stringify({ jsonrpc: "2.0", id, result: { proof, heartbeatSeconds: 30, reportedVersion: 0 } }));
}

/** Accepts the node as a real control plane does. */
export async function acceptNode({ accept }: Arrival, key: Signer): Promise<{ socket: WebSocket; hello: Hello }> {
  const socket = await accept();
  const hello = await challenge(socket);
  await prove(socket, hello, key);
  return { socket, hello };
}
