import { BoundSocket, createServer, type Socket } from "node:net";
import type { Clock } from "../../host/clock.ts";
import { plainAddress } from "../own-sockets.ts";

export interface DataPortOptions {
  readonly clock: Clock;
  /** Where the client reached the control channel. */
  readonly address: string;
  /** The only one that may connect. */
  readonly sourceIp: string;
  /** Half-open capable, and not yet read from. */
  readonly onConnection: (socket: Socket) => void;
  readonly onClose: () => void;
}

const UNUSED_MS = 30_000;

/** A listener on a fresh port for one data connection. */
export interface DataPort {
  readonly ip: string;
  readonly port: number;
  close(): void;
}

/** Listens at once; @throws when no port can be had. */
export function openDataPort({ clock, address, sourceIp, onConnection, onClose }: DataPortOptions): DataPort {
  const bound = new BoundSocket({ host: address, port: 0 });
  const { port } = bound.address();
  let isOpen = true;
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, (socket) => {
    if (!isOpen || plainAddress(socket.remoteAddress ?? "") !== plainAddress(sourceIp)) {
      socket.on("error", () => undefined).resetAndDestroy();
      return;
    }
    close();
    onConnection(socket);
  });
  const close = (): void => {
    if (!isOpen) return;
    isOpen = false;
    cancel();
    server.close();
    onClose();
  };
  const cancel = clock.after(UNUSED_MS, close);
  server.on("error", close).listen(bound);
  return { ip: plainAddress(address), port, close };
}
