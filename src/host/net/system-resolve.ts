import { lookup } from "node:dns/promises";

/** Returns all addresses of a host name in the order to try them; rejects if there are none. */
export type Resolve = (host: string) => Promise<readonly string[]>;

/** Addresses that local settings assign to names, by the name in lower case. */
export type SetHosts = Readonly<Record<string, readonly string[]>>;

/** Resolves names with assigned addresses to those only, and all others by `next`. */
export function resolveSet(hosts: SetHosts, next: Resolve): Resolve {
  return (host) => {
    const set = setAddresses(hosts, host);
    return set === undefined ? next(host) : Promise.resolve(set);
  };
}

/** Returns the addresses assigned to a name; undefined if there are none. */
export function setAddresses(hosts: SetHosts, host: string): readonly string[] | undefined {
  const name = host.toLowerCase();
  return Object.hasOwn(hosts, name) ? hosts[name] : undefined;
}

/** Maximum number of pending lookups per name; further callers wait for the newest. */
const MAX_HANGING = 2;

/**
 * Resolves by getaddrinfo(3), which cannot be cancelled: each call occupies one of the process's few worker threads
 * until it is answered or timed out. Limits pending calls per name to two.
 */
export function systemResolve(ask: Resolve = getAddresses): Resolve {
  const hanging = new Map<string, Promise<readonly string[]>[]>();
  return (host) => {
    const others = hanging.get(host) ?? [];
    const newest = others.at(-1);
    if (newest !== undefined && others.length >= MAX_HANGING) return newest;
    const asked = ask(host);
    hanging.set(host, [...others, asked]);
    const forget = (): void => {
      const left = (hanging.get(host) ?? []).filter((other) => other !== asked);
      if (left.length === 0) hanging.delete(host);
      else hanging.set(host, left);
    };
    asked.then(forget, forget);
    return asked;
  };
}

async function getAddresses(host: string): Promise<readonly string[]> {
  return (await lookup(host, { all: true })).map(({ address }) => address);
}
