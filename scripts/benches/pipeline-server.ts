// A WebSocket server in a process of its own: `pipeline` takes what comes as a session does, `bare` only parses and answers it.
import { createInterface } from "node:readline";
import { WebSocketServer, type WebSocket } from "ws";
import { batchResponses } from "../../src/controller/channel/session-upgrades.ts";
import { bytesOf } from "../../src/controller/channel/session.ts";
import { parseMessage, SESSION_LIMITS } from "../../src/protocol/channel/envelope.ts";
import { RpcPeer } from "../../src/protocol/channel/rpc.ts";
import { mixedMethods } from "./mix.ts";

const mode = process.argv[2];

/** A message of the mix, taken at its word. */
interface Asked {
  readonly id?: number;
  readonly method: string;
  readonly params: { readonly version: number; readonly first: number; readonly records: readonly unknown[] };
}

/** The same answers by `JSON.parse` and `JSON.stringify`, so that the two write as often and as much. */
function serveBare(socket: WebSocket): void {
  socket.on("message", (data) => {
    const asked = JSON.parse(Buffer.from(bytesOf(data)).toString("utf8")) as Asked;
    if (asked.id !== undefined) socket.send(JSON.stringify({ jsonrpc: "2.0", id: asked.id, result: answerTo(asked) }));
  });
}

function answerTo({ method, params: { version, first, records } }: Asked): object {
  if (method === "shadow.report") return { version };
  return method === "telemetry.push" ? { last: first + records.length - 1 } : { output: "done" };
}

function servePipeline(socket: WebSocket): void {
  const peer = new RpcPeer({
    local: mixedMethods,
    remote: {},
    handlers: {
      heartbeat: () => undefined,
      "shadow.report": ({ version }) => ({ version }),
      "telemetry.push": ({ first, records }) => ({ last: first + records.length - 1 }),
      "trigger.run": () => ({ output: "done" }),
    },
    send: (text) => socket.send(text),
    onFault: (method, error) => {
      throw new Error(`${method} failed`, { cause: error });
    },
  });
  socket.on("message", (data) => void peer.receive(parseMessage(bytesOf(data), SESSION_LIMITS)));
}

const server = new WebSocketServer({ host: "127.0.0.1", port: 0, perMessageDeflate: false });
server.on("connection", (socket, request) => {
  batchResponses(request.socket);
  return mode === "bare" ? serveBare(socket) : servePipeline(socket);
});
createInterface({ input: process.stdin }).on("line", () => {
  const address = server.address();
  console.log(typeof address === "object" && address !== null ? address.port : 0);
});
