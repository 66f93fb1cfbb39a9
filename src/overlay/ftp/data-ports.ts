import { BoundSocket, createServer, isIP, type Server, type Socket } from "node:net";
import type { Clock } from "../../host/clock.ts";
import { keepAlive } from "../dial/keep-alive.ts";
import type { OwnSockets } from "../dial/own-sockets.ts";

export interface DataPortOptions {
  /** Address to listen on. */
  readonly address: string;
  /** The only client that may connect. */
  readonly clientIp: string;
  /** Called once with the only connection; its socket keeps half-closes and was not read from. */
  readonly onConnection: (socket: Socket) => void;
}

/** Listens for one data connection. */
export interface DataPort {
  readonly port: number;
  close(): void;
}

/** Maximum number of open data ports, over all control connections. */
const MAX_PORTS = 512;
const UNUSED_MS = 30_000;
const BACKLOG = 8;

/** Listeners for data connections on ephemeral ports (ip(7), ip_local_port_range). */
export class DataPorts {
  readonly #clock: Clock;
  readonly #own: OwnSockets;
  readonly #hasRoom: () => boolean;
  readonly #open = new Set<DataPort>();

  /** `hasRoom` reports whether the process has descriptors for the expected connection. */
  constructor(clock: Clock, own: OwnSockets, hasRoom: () => boolean) {
    this.#clock = clock;
    this.#own = own;
    this.#hasRoom = hasRoom;
  }

  /** Starts listening, or returns undefined. Closes with the client's first connection, on `close`, or after 30 s. */
  open({ address, clientIp, onConnection }: DataPortOptions): DataPort | undefined {
    if (this.#open.size >= MAX_PORTS || !this.#hasRoom()) return undefined;
    const bound = bind(address);
    if (bound === undefined) return undefined;
    const { port } = bound.address();
    const server: Server = createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, (socket) => {
      // A connection of another client must not use up the port.
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
