// The bare edge on the side of the clients: one session to the gateway, in it one to the other edge, in that a stream for each
// connection. Arguments: the gateway as host:port, then pairs `<port to listen on>:<port to ask the other edge for>`.
import type { ClientHttp2Session } from "node:http2";
import { createServer } from "node:net";
import { createInterface } from "node:readline";
import { connect } from "node:tls";
import { clientOver, splice, tlsLayer } from "./layers.ts";

const [gateway = "", ...pairs] = process.argv.slice(2);
const [host, port] = gateway.split(":");

function toPeer(): ClientHttp2Session {
  const socket = connect({ ...tlsLayer, host, port: Number(port), ALPNProtocols: ["h2"] });
  socket.setNoDelay();
  const stream = clientOver(socket).request({ ":method": "CONNECT", ":authority": "peer:443" });
  return clientOver(connect({ ...tlsLayer, socket: stream, ALPNProtocols: ["holdfast-peer"] }));
}

const peer = toPeer();
for (const pair of pairs) {
  const [own = 0, target = ""] = pair.split(":");
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
    splice(client, peer.request({ ":method": "CONNECT", ":authority": "peer:443", "holdfast-service": target }));
  });
  server.listen({ host: "127.0.0.1", port: Number(own), backlog: 4096 });
}
createInterface({ input: process.stdin }).on("line", () => console.log("ready"));
