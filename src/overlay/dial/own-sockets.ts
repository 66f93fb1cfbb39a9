import { isIP } from "node:net";
import { isLoopback, plainAddress } from "../../lib/net/plain-address.ts";

type Transport = "tcp" | "udp";

/** Addresses that this overlay listens on, so that it does not dial itself. */
export interface OwnSockets {
  add(protocol: Transport, address: string, port: number): void;
  remove(protocol: Transport, address: string, port: number): void;
  /** Reports whether a connection to this address would reach this overlay. */
  leadsHere(protocol: Transport, address: string, port: number): boolean;
  /** Returns the machine's addresses, as far as the runtime lists them. */
  readonly localAddresses: () => readonly string[];
  readonly size: number;
  list(): readonly { readonly protocol: Transport; readonly address: string; readonly port: number }[];
}

/** Creates an empty set; `localAddresses` returns the machine's addresses without loopback. */
export function ownSockets(localAddresses: () => readonly string[]): OwnSockets {
  const bound = new Map<string, Set<string>>();
  let size = 0;
  const keyOf = (protocol: Transport, port: number): string => `${protocol} ${port}`;
  return {
    add(protocol, address, port) {
      const key = keyOf(protocol, port);
      const addresses = bound.get(key) ?? new Set();
      if (addresses.has(address)) return;
      bound.set(key, addresses.add(address));
      size += 1;
    },
    remove(protocol, address, port) {
      const key = keyOf(protocol, port);
      const addresses = bound.get(key);
      if (addresses?.delete(address) === true) size -= 1;
      if (addresses?.size === 0) bound.delete(key);
    },
    leadsHere(protocol, address, port) {
      const addresses = bound.get(keyOf(protocol, port));
      return addresses !== undefined && meets(address, [...addresses], localAddresses);
    },
    localAddresses,
    get size() {
      return size;
    },
    list: () =>
      [...bound].flatMap(([key, addresses]) => {
        const [protocol, port] = key.split(" ");
        const name = protocol === "udp" ? ("udp" as const) : ("tcp" as const);
        return [...addresses].map((address) => ({ protocol: name, address, port: Number(port) }));
      }),
  };
}

/** Reports whether dialling `target` can reach a socket bound to one of `bound`. Pure except for `localAddresses`. */
export function meets(target: string, bound: readonly string[], localAddresses: () => readonly string[]): boolean {
  const address = plainAddress(target);
  const own = bound.map(plainAddress);
  if (own.includes(address)) return true;
  const isHere = isAny(address) || isLoopback(address) || localAddresses().map(plainAddress).includes(address);
  if (!isHere) return false;
  // Dialling the unspecified address reaches the loopback, but not a socket bound to another loopback address.
  const dialled = isAny(address) ? (address === "::" ? "::1" : "127.0.0.1") : address;
  return own.some((one) => (isAny(one) ? isIP(one) === isIP(address) : one === dialled));
}

function isAny(address: string): boolean {
  return address === "0.0.0.0" || address === "::";
}
