import type { Server } from "node:http";
import type { Socket } from "node:net";
import { isLoopback, plainAddress } from "../../lib/net/plain-address.ts";
import type { Sources } from "../http/sources.ts";

/** Limit of connections without a session per source prefix. */
const MAX_PER_PREFIX = 256;
/** Limit of connections in addition to the sessions. */
const MAX_BESIDE_SESSIONS = 4096;

export interface ConnectionLimitOptions {
  readonly maxSessions: number;
  readonly sources: Pick<Sources, "prefixOf">;
}

/** Fields of a socket that the limits use. */
interface Connection {
  readonly remoteAddress?: string | undefined;
  readonly remotePort?: number | undefined;
  destroy(): unknown;
  once(event: "close", listener: () => void): unknown;
}

/**
 * Limits the connections of the controller's port: in total, and per source prefix while they are no WebSockets, which have their own
 * limits. Loopback is exempt, because a front end on this machine is the source of all connections.
 */
export class ConnectionLimits {
  /** Addresses with ports by prefix. Not sockets: for a TLS connection, HTTP and the server see different ones. */
  readonly #open = new Map<string, Set<string>>();
  readonly #sources: ConnectionLimitOptions["sources"];

  constructor(server: Server, { maxSessions, sources }: ConnectionLimitOptions) {
    this.#sources = sources;
    server.maxConnections = maxSessions + MAX_BESIDE_SESSIONS;
    server.on("connection", (socket: Socket) => this.admit(socket));
  }

  /** Counts a new connection, or closes it at the limit. */
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

  /** Stops counting a connection that became a WebSocket. */
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
