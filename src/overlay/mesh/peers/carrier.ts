import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";

/**
 * Lets a TLS socket and the stream that carries it end together. TLS and HTTP/2 wait on for the other direction when one has ended,
 * but here nothing more can come of it.
 */
export function endTogether(carrier: Duplex, socket: TLSSocket): void {
  carrier
    .on("error", () => undefined)
    .once("end", () => carrier.destroy())
    .once("close", () => socket.destroy());
  socket.on("error", () => undefined).once("close", () => carrier.destroy());
  if (carrier.destroyed) socket.destroy();
}
