import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";
import { isInBlock } from "../../lib/net/cidr.ts";
import { plainAddress, sharedPrefix } from "../../lib/net/plain-address.ts";

/** The origin of a request. */
export interface Source {
  /** Address of the client, or of the front end that hides it. */
  readonly address: string;
  /** The prefix that limits count: the IPv4 address, or the /64 of an IPv6 one. Undefined if a front end hides the client. */
  readonly prefix: string | undefined;
}

export interface SourceOptions {
  /** Blocks of the front ends whose `X-Forwarded-For` counts. */
  readonly trustedProxies: readonly string[];
  /** Whether connections may come through a front end. */
  readonly hasFrontEnd: boolean;
}

/** Tells requests apart by their clients, also behind front ends that name them. */
export interface Sources {
  /** Whether every client is behind a front end that does not name it. */
  readonly areHidden: boolean;
  of(request: Pick<IncomingMessage, "headers"> & { readonly socket: Connection }): Source;
  /** Whether an address is that of a front end, and so of no client. */
  isFrontEnd(address: string): boolean;
  /** The prefix that the connections of a socket count for; undefined if it may carry the requests of many clients. */
  prefixOf(socket: Connection): string | undefined;
}

interface Connection {
  readonly remoteAddress?: string | undefined;
}

/** An address with a port: `[IPv6]:port` or `IPv4:port` (RFC 7239 §6). */
const WITH_PORT = /^(?:\[([^\]]+)\](?::\d{1,5})?|(\d+\.\d+\.\d+\.\d+):\d{1,5})$/;

export function sourcesOf({ trustedProxies, hasFrontEnd }: SourceOptions): Sources {
  const areHidden = hasFrontEnd && trustedProxies.length === 0;
  const isTrusted = (address: string): boolean => trustedProxies.some((block) => isInBlock(address, block));
  const addressOf = ({ remoteAddress }: Connection): string => plainAddress(remoteAddress ?? "unknown");
  return {
    areHidden,
    of({ socket, headers }) {
      const address = addressOf(socket);
      if (areHidden) return { address, prefix: undefined };
      if (!isTrusted(address)) return { address, prefix: sharedPrefix(address) };
      const client = clientOf(headers["x-forwarded-for"], isTrusted);
      return client === undefined ? { address, prefix: undefined } : { address: client, prefix: sharedPrefix(client) };
    },
    isFrontEnd: isTrusted,
    prefixOf(socket) {
      const address = addressOf(socket);
      return areHidden || isTrusted(address) ? undefined : sharedPrefix(address);
    },
  };
}

/**
 * Reads the list from its end, where the nearest front end writes: the first address that is no trusted front end is the client. Entries
 * before it are the client's own claim.
 */
function clientOf(header: string | string[] | undefined, isTrusted: (address: string) => boolean): string | undefined {
  const entries = (Array.isArray(header) ? header.join(",") : (header ?? "")).split(",").toReversed();
  for (const entry of entries) {
    const text = entry.trim();
    const [, six, four] = WITH_PORT.exec(text) ?? [];
    const address = plainAddress(six ?? four ?? text);
    if (isIP(address) === 0) return undefined;
    if (!isTrusted(address)) return address;
  }
  return undefined;
}
