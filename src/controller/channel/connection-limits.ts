import type { Server } from "node:http";
import type { Socket } from "node:net";
import { isLoopback, plainAddress } from "../../lib/plain-address.ts";

/** Connections of one source address that carry no session. */
const MAX_PER_ADDRESS = 256;
/** Connections in all beside the sessions. */
const ROOM_BESIDE_SESSIONS = 4096;

export interface ConnectionLimitOptions {
  readonly maxSessions: number;
  /** Off where a front end is the source of all connections. */
  readonly isPerAddress: boolean;
}

/** The part of a socket that the limits use. */
interface Connection {
  readonly remoteAddress?: string | undefined;
  readonly remotePort?: number | undefined;
  destroy(): unknown;
  once(event: "close", listener: () => void): unknown;
}

/**
 * Limits the connections of the controller's port: in all, and from one address as long as they carry no WebSocket, which have limits of
 * their own. Loopback is spared: a front end on this machine is the source of everybody's connections.
 */
export class ConnectionLimits {
  /** Source ports by address: a TLS connection is known to HTTP by another socket than to the server. */
  readonly #open = new Map<string, Set<number>>();
  readonly #isPerAddress: boolean;

  constructor(server: Server, { maxSessions, isPerAddress }: ConnectionLimitOptions) {
    this.#isPerAddress = isPerAddress;
    server.maxConnections = maxSessions + ROOM_BESIDE_SESSIONS;
    server.on("connection", (socket: Socket) => this.admit(socket));
  }

  /** Counts a new connection, or cuts it. */
  admit(socket: Connection): void {
    const { remotePort: port } = socket;
    const address = plainAddress(socket.remoteAddress ?? "");
    if (!this.#isPerAddress || port === undefined || isLoopback(address)) return;
    const ports = this.#open.get(address) ?? new Set<number>();
    if (ports.size >= MAX_PER_ADDRESS) {
      socket.destroy();
      return;
    }
    this.#open.set(address, ports.add(port));
    socket.once("close", () => this.#forget(address, port));
  }

  /** No longer counts a connection that became a WebSocket. */
  upgraded({ remoteAddress, remotePort }: Pick<Socket, "remoteAddress" | "remotePort">): void {
    if (remotePort !== undefined) this.#forget(plainAddress(remoteAddress ?? ""), remotePort);
  }

  #forget(address: string, port: number): void {
    const ports = this.#open.get(address);
    ports?.delete(port);
    if (ports?.size === 0) this.#open.delete(address);
  }
}
