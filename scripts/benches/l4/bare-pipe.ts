// What the overlay is compared with: a Node that pipes each connection to another one and back, and knows nothing else. Its arguments
// are pairs `<port to listen on>:<port to connect to>`.
import { connect, createServer } from "node:net";
import { createInterface } from "node:readline";

for (const pair of process.argv.slice(2)) {
  const [own = 0, target = 0] = pair.split(":").map(Number);
  const server = createServer({ allowHalfOpen: true }, (client) => {
    const upstream = connect({ host: "127.0.0.1", port: target, allowHalfOpen: true });
    client.on("error", () => upstream.destroy());
    upstream.on("error", () => client.destroy());
    client.pipe(upstream);
    upstream.pipe(client);
  });
  server.listen({ host: "127.0.0.1", port: own, backlog: 4096 });
}
createInterface({ input: process.stdin }).on("line", () => console.log("ready"));
