import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";

/**
 * Closes a TLS socket and the stream below it together. TLS and HTTP/2 would wait for the other direction after one has
 * ended, but nothing more can arrive.
 */
export function endTogether(carrier: Duplex, socket: TLSSocket): void {
  carrier
    .on("error", () => undefined)
    .once("end", () => carrier.destroy())
    .once("close", () => socket.destroy());
  socket.on("error", () => undefined).once("close", () => carrier.destroy());
  if (carrier.destroyed) socket.destroy();
}
