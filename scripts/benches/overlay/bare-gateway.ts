// What the overlay's gateway is compared with: the same layers and nothing else. Whoever asks for a stream gets one of the node
// that has dialled with `holdfast-h2r` last. Arguments: port, and addresses to listen on.
import type { ClientHttp2Session } from "node:http2";
import { createServer } from "node:tls";
import { createInterface } from "node:readline";
import { clientOver, serverOver, splice, tlsLayer } from "./layers.ts";

const [port, ...addresses] = process.argv.slice(2);
const inward: ClientHttp2Session[] = [];

for (const host of addresses) {
  const server = createServer({ ...tlsLayer, ALPNProtocols: ["h2", "holdfast-h2r"] }, (socket) => {
    socket.on("error", () => undefined).setNoDelay();
    if (socket.alpnProtocol === "holdfast-h2r") {
      const session = clientOver(socket);
      inward.push(session);
      session.on("close", () => inward.splice(inward.indexOf(session), 1));
      return;
    }
    serverOver(socket).on("stream", (stream, headers) => {
      const onward = inward.at(-1)?.request({ ":method": "CONNECT", ":authority": headers[":authority"] });
      if (onward === undefined) return stream.respond({ ":status": 502 }, { endStream: true });
      onward.once("response", () => stream.respond({ ":status": 200 }));
      splice(stream, onward);
    });
  });
  server.listen({ port: Number(port), host, backlog: 4096 });
}
createInterface({ input: process.stdin }).on("line", () => console.log(inward.length));
