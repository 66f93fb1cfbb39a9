// A WebSocket server in a process of its own: `echo` sends back what comes, `pipeline` takes it as a session does.
import { createInterface } from "node:readline";
import { WebSocketServer, type WebSocket } from "ws";
import { answerTogether } from "../../src/controller/channel/gate.ts";
import { bytesOf } from "../../src/controller/channel/session.ts";
import { parseMessage, SESSION_LIMITS } from "../../src/protocol/envelope.ts";
import { RpcPeer } from "../../src/protocol/rpc.ts";
import { mixedMethods } from "./mix.ts";

const mode = process.argv[2];

function serveEcho(socket: WebSocket): void {
  socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
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
  if (mode === "echo") return serveEcho(socket);
  answerTogether(request.socket);
  return servePipeline(socket);
});
createInterface({ input: process.stdin }).on("line", () => {
  const address = server.address();
  console.log(typeof address === "object" && address !== null ? address.port : 0);
});
