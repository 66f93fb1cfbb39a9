import { lookup } from "node:dns/promises";

/** All addresses of a host name, in the order they are to be tried; rejects when there are none. */
export type Resolve = (host: string) => Promise<readonly string[]>;

/** Addresses of names that local settings give, by the name in lower case. */
export type SetHosts = Readonly<Record<string, readonly string[]>>;

/** Resolves names whose addresses are set by hand to those only, and all others as `next` does. */
export function resolveSet(hosts: SetHosts, next: Resolve): Resolve {
  return (host) => {
    const set = setAddresses(hosts, host);
    return set === undefined ? next(host) : Promise.resolve(set);
  };
}

/** The addresses that are set for a name; undefined for one that is resolved. */
export function setAddresses(hosts: SetHosts, host: string): readonly string[] | undefined {
  const name = host.toLowerCase();
  return Object.hasOwn(hosts, name) ? hosts[name] : undefined;
}

/** So many lookups of one name may hang; the next ones wait for the newest of them. */
const MAX_HANGING = 2;

/**
 * The machine's own resolver, getaddrinfo(3), which nothing can interrupt: each call holds one of the process's few worker threads
 * until its name servers have answered or timed out, so no more hang at a time than a second chance needs.
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
