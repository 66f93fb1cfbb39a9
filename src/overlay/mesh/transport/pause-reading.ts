import type { TLSSocket } from "node:tls";
import type { Clock } from "../../../host/clock.ts";

/**
 * Reads nothing from a socket for a while, so that TCP holds back whoever sends. HTTP/2 has taken the socket's handle for itself and
 * knows no such thing; where the handle is another than expected, nothing happens.
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
