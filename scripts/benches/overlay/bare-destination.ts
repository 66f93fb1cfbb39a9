// The bare edge on the side of the servers: it dials the gateway and serves what comes back. Argument: the gateway as host:port.
import { connect as connectTcp } from "node:net";
import { createInterface } from "node:readline";
import { connect, TLSSocket } from "node:tls";
import { serverOver, splice, tlsLayer } from "./layers.ts";

const [host, port] = (process.argv[2] ?? "").split(":");
const socket = connect({ ...tlsLayer, host, port: Number(port), ALPNProtocols: ["holdfast-h2r"] }, () => {
  serverOver(socket.setNoDelay()).on("stream", (tunnel) => {
    tunnel.respond({ ":status": 200 });
    const secured = new TLSSocket(tunnel, { ...tlsLayer, isServer: true, ALPNProtocols: ["holdfast-peer"] });
    secured
      .on("error", () => undefined)
      .once("secure", () => {
        // Only sockets of a tls.Server clear this themselves, and HTTP/2 would wait for it.
        Reflect.set(secured, "secureConnecting", false);
        serverOver(secured).on("stream", (flow, headers) => {
          const target = Number(headers["holdfast-service"]);
          const upstream = connectTcp({ host: "127.0.0.1", port: target, allowHalfOpen: true, noDelay: true }, () => {
            flow.respond({ ":status": 200 });
          });
          splice(flow, upstream);
        });
      });
  });
});
createInterface({ input: process.stdin }).on("line", () => console.log("ready"));
