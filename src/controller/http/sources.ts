import { AsyncLocalStorage } from "node:async_hooks";
import type { IncomingMessage } from "node:http";
import { isIP } from "node:net";
import { isInBlock } from "../../lib/net/cidr.ts";
import { plainAddress, sharedPrefix } from "../../lib/net/plain-address.ts";

/** Origin of a request. */
export interface Source {
  /** Address of the client, or of the front end that hides it. */
  readonly address: string;
  /** Prefix that limits apply to: the IPv4 address, or the /64 of an IPv6 address. Undefined if a front end hides the client. */
  readonly prefix: string | undefined;
}

export interface SourceOptions {
  /** Address blocks of front ends whose `X-Forwarded-For` is trusted. */
  readonly trustedProxies: readonly string[];
  /** Set if connections may come through a front end. */
  readonly hasFrontEnd: boolean;
}

/** Determines the clients of requests, also behind front ends. */
export interface Sources {
  /** Set if all clients are behind a front end that does not identify them. */
  readonly areHidden: boolean;
  of(request: Pick<IncomingMessage, "headers"> & { readonly socket: Connection }): Source;
  /** Reports whether an address is that of a front end. */
  isFrontEnd(address: string): boolean;
  /** Returns the prefix that a socket's connection counts for; undefined if it may carry requests of many clients. */
  prefixOf(socket: Connection): string | undefined;
}

/** Knows for which request asynchronous work runs, so that a record of it can name the address. */
export class RequestScope {
  readonly #source = new AsyncLocalStorage<Source>();

  /** Runs the work of a request. */
  within<T>(source: Source, work: () => T): T {
    return this.#source.run(source, work);
  }

  /** Returns the address of the client; empty outside of requests. */
  address(): string {
    return this.#source.getStore()?.address ?? "";
  }
}

interface Connection {
  readonly remoteAddress?: string | undefined;
}

/** Address with a port: `[IPv6]:port` or `IPv4:port` (RFC 7239 §6). */
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
 * Returns the client of `X-Forwarded-For`. Reads from the end, where the nearest front end appends: the first address that is not a trusted
 * front end is the client. Earlier entries are the client's own claim.
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
