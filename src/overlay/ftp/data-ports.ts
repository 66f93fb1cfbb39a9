import { BoundSocket, createServer, isIP, type Server, type Socket } from "node:net";
import type { Clock } from "../../host/clock.ts";
import { keepAlive } from "../flow/keep-alive.ts";
import type { OwnSockets } from "../dial/own-sockets.ts";

export interface DataPortOptions {
  /** Where it listens. */
  readonly address: string;
  /** Who may connect. */
  readonly clientIp: string;
  /** Told once of the one connection; the socket is half-open capable and not yet read from. */
  readonly onConnection: (socket: Socket) => void;
}

/** A listener for one data connection. */
export interface DataPort {
  readonly port: number;
  close(): void;
}

/** The most that listen at a time, for all control connections together. */
const MAX_PORTS = 512;
const UNUSED_MS = 30_000;
const BACKLOG = 8;

/** Listeners for data connections, at ports that the machine chooses (ip(7), ip_local_port_range). */
export class DataPorts {
  readonly #clock: Clock;
  readonly #own: OwnSockets;
  readonly #hasRoom: () => boolean;
  readonly #open = new Set<DataPort>();

  /** `hasRoom` tells whether the process can take the connection that is to come. */
  constructor(clock: Clock, own: OwnSockets, hasRoom: () => boolean) {
    this.#clock = clock;
    this.#own = own;
    this.#hasRoom = hasRoom;
  }

  /** Listens at once, or not at all. It ends with the first connection of the client, when it is closed, or after half a minute. */
  open({ address, clientIp, onConnection }: DataPortOptions): DataPort | undefined {
    if (this.#open.size >= MAX_PORTS || !this.#hasRoom()) return undefined;
    const bound = bind(address);
    if (bound === undefined) return undefined;
    const { port } = bound.address();
    const server: Server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, (socket) => {
      // Somebody else's connection must not use it up.
      if (socket.remoteAddress !== clientIp || !this.#open.has(dataPort)) {
        socket.on("error", () => undefined).resetAndDestroy();
        return;
      }
      keepAlive(socket);
      dataPort.close();
      onConnection(socket);
    });
    const dataPort: DataPort = {
      port,
      close: () => {
        if (!this.#open.delete(dataPort)) return;
        cancel();
        this.#own.remove("tcp", address, port);
        server.close();
      },
    };
    const cancel = this.#clock.after(UNUSED_MS, () => dataPort.close());
    this.#open.add(dataPort);
    this.#own.add("tcp", address, port);
    server.on("error", () => dataPort.close()).listen(bound, BACKLOG);
    return dataPort;
  }

  close(): void {
    for (const dataPort of this.#open) dataPort.close();
  }
}

function bind(address: string): BoundSocket | undefined {
  try {
    return new BoundSocket({ host: address, port: 0, ipv6Only: isIP(address) === 6 });
  } catch {
    return undefined;
  }
}
