import type { Server } from "node:http";
import type { Socket } from "node:net";
import { isLoopback, plainAddress } from "../../lib/net/plain-address.ts";
import type { Sources } from "./sources.ts";

/** Connections of one source prefix that carry no session. */
const MAX_PER_PREFIX = 256;
/** Connections in all beside the sessions. */
const ROOM_BESIDE_SESSIONS = 4096;

export interface ConnectionLimitOptions {
  readonly maxSessions: number;
  readonly sources: Pick<Sources, "prefixOf">;
}

/** The part of a socket that the limits use. */
interface Connection {
  readonly remoteAddress?: string | undefined;
  readonly remotePort?: number | undefined;
  destroy(): unknown;
  once(event: "close", listener: () => void): unknown;
}

/**
 * Limits the connections of the controller's port: in all, and from one source prefix as long as they carry no WebSocket, which have limits of
 * their own. Loopback is spared: a front end on this machine is the source of everybody's connections.
 */
export class ConnectionLimits {
  /** Addresses with their ports by prefix: a TLS connection is known to HTTP by another socket than to the server. */
  readonly #open = new Map<string, Set<string>>();
  readonly #sources: ConnectionLimitOptions["sources"];

  constructor(server: Server, { maxSessions, sources }: ConnectionLimitOptions) {
    this.#sources = sources;
    server.maxConnections = maxSessions + ROOM_BESIDE_SESSIONS;
    server.on("connection", (socket: Socket) => this.admit(socket));
  }

  /** Counts a new connection, or cuts it. */
  admit(socket: Connection): void {
    const prefix = this.#sources.prefixOf(socket);
    const name = nameOf(socket);
    if (prefix === undefined || name === undefined || isLoopback(plainAddress(socket.remoteAddress ?? ""))) return;
    const open = this.#open.get(prefix) ?? new Set<string>();
    if (open.size >= MAX_PER_PREFIX) {
      socket.destroy();
      return;
    }
    this.#open.set(prefix, open.add(name));
    socket.once("close", () => this.#forget(prefix, name));
  }

  /** No longer counts a connection that became a WebSocket. */
  upgraded(socket: Pick<Socket, "remoteAddress" | "remotePort">): void {
    const prefix = this.#sources.prefixOf(socket);
    const name = nameOf(socket);
    if (prefix !== undefined && name !== undefined) this.#forget(prefix, name);
  }

  #forget(prefix: string, name: string): void {
    const open = this.#open.get(prefix);
    open?.delete(name);
    if (open?.size === 0) this.#open.delete(prefix);
  }
}

function nameOf({ remoteAddress, remotePort }: Pick<Connection, "remoteAddress" | "remotePort">): string | undefined {
  return remotePort === undefined ? undefined : `${plainAddress(remoteAddress ?? "")} ${remotePort}`;
}
