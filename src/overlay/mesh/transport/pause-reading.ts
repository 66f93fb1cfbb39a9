import type { TLSSocket } from "node:tls";
import type { Clock } from "../../../host/clock.ts";

/**
 * Stops reading from a socket for `ms` milliseconds, so that TCP slows down the sender. HTTP/2 owns the socket's handle
 * and has no such function. Does nothing if the handle is not as expected.
 */
export function pauseReading(socket: TLSSocket, clock: Pick<Clock, "after">, ms: number): void {
  if (!call(socket, "readStop")) return;
  clock.after(ms, () => call(socket, "readStart"));
}

function call(socket: TLSSocket, name: "readStop" | "readStart"): boolean {
  const handle: unknown = Reflect.get(socket, "_handle");
  if (socket.destroyed || typeof handle !== "object" || handle === null) return false;
  const method: unknown = Reflect.get(handle, name);
  if (typeof method !== "function") return false;
  Reflect.apply(method, handle, []);
  return true;
}
