import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { onTestFinished } from "vitest";
import { SESSION_PATH, SUBPROTOCOL } from "../../../src/protocol/channel/envelope.ts";

/** An unauthenticated client on the controller's channel that stays silent. */
export interface Stranger {
  readonly socket: Socket;
  /** The head of the answer to the upgrade. */
  readonly head: string;
}

/** Requests the upgrade from a loopback address of its own, and stays connected. */
export async function startStranger(
  port: number,
  localAddress: string,
  headers: readonly string[] = [],
): Promise<Stranger> {
  const socket = connect({ port, host: "127.0.0.1", localAddress });
  onTestFinished(() => void socket.destroy());
  socket.on("error", () => undefined);
  const key = Buffer.alloc(16, 7).toString("base64");
  const lines = [
    `GET ${SESSION_PATH} HTTP/1.1`,
    "host: 127.0.0.1",
    "connection: Upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    `sec-websocket-key: ${key}`,
    `sec-websocket-protocol: ${SUBPROTOCOL}`,
    ...headers,
  ];
  socket.write([...lines, "", ""].join("\r\n"));
  const [data] = (await once(socket, "data")) as [Buffer];
  socket.resume();
  return { socket, head: data.toString("latin1").split("\r\n\r\n", 1)[0] ?? "" };
}
