import { randomBytes } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";
import { WebSocketServer } from "ws";
import { SUBPROTOCOL } from "../../../src/protocol/channel/envelope.ts";

/** The answer to a client: the challenge, another message, or an HTTP answer. */
export type Greeting = "greets" | "other words" | "no JSON" | "closes" | number;

export interface AnsweringControlPlane {
  readonly port: number;
  /** Number of requests. */
  readonly requested: number;
  answer(greeting: Greeting): void;
}

/** A control plane up to its first answer to an unauthenticated client. */
export async function aControlPlane(first: Greeting): Promise<AnsweringControlPlane> {
  let greeting = first;
  let requested = 0;
  const sockets = new WebSocketServer({ noServer: true, handleProtocols: () => SUBPROTOCOL });
  const server = createServer((_request, response) => response.writeHead(426).end());
  server.on("upgrade", (request, stream, head) => {
    requested += 1;
    if (typeof greeting === "number") {
      stream.end(`HTTP/1.1 ${greeting} No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`);
      return;
    }
    const says = greeting;
    sockets.handleUpgrade(request, stream, head, (socket) => {
      socket.on("error", () => undefined);
      const params = { nonce: randomBytes(32).toString("base64url"), protocol: 1 };
      const method = says === "greets" ? "session.challenge" : "session.other";
      if (says === "closes") socket.close(1011, "out of order");
      else socket.send(says === "no JSON" ? "hello" : JSON.stringify({ jsonrpc: "2.0", method, params }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    for (const socket of sockets.clients) socket.terminate();
    server.close();
  });
  return {
    port: (server.address() as AddressInfo).port,
    get requested() {
      return requested;
    },
    answer: (next) => {
      greeting = next;
    },
  };
}
