// Holds many sessions open, in a process of its own, so that its memory is not the controller's.
//   nodes DATABASE COUNT   registers nodes in a controller that is stopped
//   sessions ORIGIN COUNT  opens sessions of so many more of them, with a real handshake
//   sockets PORT COUNT     opens so many bare sockets
//   close                  drops all of them
import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { WebSocket, type RawData } from "ws";
import { bytesOf } from "../../src/controller/channel/session.ts";
import { parseMessage, SESSION_LIMITS, SESSION_PATH, SUBPROTOCOL } from "../../src/protocol/channel/envelope.ts";
import { signJws } from "../../src/protocol/channel/jws.ts";
import { controlMethods } from "../../src/protocol/channel/methods.ts";
import { addNodes, type FleetNode } from "./fleet.ts";

/** Below what one source address may have unauthenticated at a time. */
const AT_ONCE = 8;
let fleet: readonly FleetNode[] = [];
let open: WebSocket[] = [];

async function sessions(origin: string, count: number): Promise<void> {
  await each(fleet.slice(open.length, open.length + count), async (node) => {
    const socket = new WebSocket(`${origin.replace(/^http/, "ws")}${SESSION_PATH}`, SUBPROTOCOL, {
      perMessageDeflate: false,
    });
    open.push(socket);
    const nonce = await challengeOf(socket);
    const cnonce = randomBytes(32).toString("base64url");
    const claims = { iss: node.uid, aud: origin, nonce, cnonce, n: 1, bootId: randomUUID() };
    const have = { keys: 1, node: 1, cluster: 0, domain: 1 };
    const proof = await signJws("holdfast-node-proof+jwt", { ...claims, version: "0.0.0", protocol: 1, have }, node);
    const params = { proof, reportedVersion: 0 };
    socket.send(JSON.stringify({ jsonrpc: "2.0", id: 1, method: "session.hello", params }));
    for (;;) {
      const message = await nextMessage(socket);
      if (message.kind === "failure") throw new Error(`hello was refused: ${message.error.message}`);
      if (message.kind === "success") break;
    }
  });
}

async function challengeOf(socket: WebSocket): Promise<string> {
  const message = await nextMessage(socket);
  if (message.kind !== "notification") throw new Error("no challenge");
  return controlMethods["session.challenge"].params.parse(message.params).nonce;
}

async function nextMessage(socket: WebSocket): Promise<ReturnType<typeof parseMessage>> {
  const [data] = (await once(socket, "message")) as [RawData];
  return parseMessage(bytesOf(data), SESSION_LIMITS);
}

async function sockets(port: number, count: number): Promise<void> {
  await each(Array.from({ length: count }), async () => {
    const socket = new WebSocket(`ws://127.0.0.1:${port}`, { perMessageDeflate: false });
    open.push(socket);
    await once(socket, "open");
  });
}

/** Does the work for every item, a few at a time. */
async function each<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const queue = items.values();
  const worker = async (): Promise<void> => {
    for (const item of queue) await work(item);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

async function obey(line: string): Promise<void> {
  const [command, where = "", count] = line.split(" ");
  if (command === "nodes") fleet = await addNodes(where, Number(count));
  if (command === "sessions") await sessions(where, Number(count));
  if (command === "sockets") await sockets(Number(where), Number(count));
  if (command === "close") {
    for (const socket of open) socket.terminate();
    open = [];
  }
  console.log("done");
}

createInterface({ input: process.stdin }).on("line", (line) => void obey(line));
