// What a controller is compared with: a ws server of the same options that holds every socket and knows nobody.
import { createServer } from "node:http";
import { createInterface } from "node:readline";
import { WebSocketServer, type WebSocket } from "ws";
import { SESSION_LIMITS } from "../../src/protocol/channel/envelope.ts";

const held = new Set<WebSocket>();
const server = createServer();
const sockets = new WebSocketServer({
  noServer: true,
  clientTracking: false,
  perMessageDeflate: false,
  maxPayload: SESSION_LIMITS.maxBytes,
});
server.on("upgrade", (request, stream, head) => {
  sockets.handleUpgrade(request, stream, head, (socket) => {
    held.add(socket);
    socket.on("message", () => undefined);
    socket.on("close", () => held.delete(socket));
  });
});
server.listen(0, "127.0.0.1");
createInterface({ input: process.stdin }).on("line", () => {
  const address = server.address();
  console.log(typeof address === "object" && address !== null ? address.port : 0);
});
