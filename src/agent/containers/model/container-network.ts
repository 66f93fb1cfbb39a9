import { HostError } from "../../../errors.ts";
import type { Engine, NetworkSummary } from "../../../host/engine/engine.ts";
import { serialQueue } from "../../../lib/async/serial-queue.ts";
import { addressRange, type AddressRange } from "../../../lib/net/cidr.ts";
import { OWNER_LABEL } from "./own-containers.ts";

/** Name of the kernel bridge; `hf-` is the prefix of links that the section network owns. */
export const CONTAINER_LINK = "holdfast0";

export interface ContainerNetworkOptions {
  /** Uid of the node. */
  readonly owner: () => string;
  readonly subnet: () => string;
  /** Reserved addresses by name. */
  readonly reserved: () => Readonly<Record<string, string>>;
  /** The bridge's own address. */
  readonly gateway: () => string;
  /** IPv4 addresses of this machine by link, with prefix length. */
  readonly addresses: () => ReadonlyMap<string, readonly string[]>;
  /** Stops our containers on the network. */
  readonly empty: (signal: AbortSignal) => Promise<void>;
}

type NetworkEngine = Pick<Engine, "listNetworks" | "createNetwork" | "removeNetwork">;

/** The network of this node's containers. */
export interface ContainerNetwork {
  readonly name: () => string;
  /**
   * Creates the network, or recreates it for another range; its containers are stopped first, and each moves when it is replaced.
   * @throws {HostError} `address-conflict` when a link of the machine has an address in its range, or another network of the engine, or of
   * a link if the range is new, overlaps the range; nothing is changed then. Otherwise as the engine.
   */
  ensure(engine: NetworkEngine, signal: AbortSignal): Promise<void>;
  /** Reports whether the network exists with its range and no change is in progress. Changes nothing. */
  stands(engine: NetworkEngine, signal: AbortSignal): Promise<boolean>;
  /**
   * Has somebody make its link again, and nobody change the network meanwhile; says false when the engine has no such network.
   * Rejects as `makeLink` and the engine do.
   */
  restore(
    engine: NetworkEngine,
    makeLink: (bridge: { readonly address: string; readonly prefixLength: number }) => Promise<void>,
    signal: AbortSignal,
  ): Promise<boolean>;
  /** Removes the network; succeeds if it does not exist. */
  remove(engine: NetworkEngine, signal: AbortSignal): Promise<void>;
}

/** The network of the node's containers, created with the first one. */
export function containerNetwork(options: ContainerNetworkOptions): ContainerNetwork {
  const name = (): string => `holdfast-${options.owner().slice(0, 8)}`;
  const queue = serialQueue();
  let under = 0;

  function isOurs({ name: other, labels }: NetworkSummary): boolean {
    return other === name() && labels[OWNER_LABEL] === options.owner();
  }

  async function ensure(engine: NetworkEngine, signal: AbortSignal): Promise<void> {
    const subnet = options.subnet();
    checkRange(subnet, options.addresses());
    const networks = await engine.listNetworks([], signal);
    const found = networks.find(isOurs);
    if (found?.subnets.includes(subnet) === true) return;
    // Conflicts of the new network are found before the old one is touched.
    checkLinks(subnet, options.addresses());
    checkOthers(
      subnet,
      networks.filter((network) => network !== found),
    );
    if (found !== undefined) {
      await options.empty(signal);
      await engine.removeNetwork(found.id, signal);
    }
    await engine.createNetwork(
      {
        name: name(),
        driver: "bridge",
        subnet,
        gateway: options.gateway(),
        reserved: options.reserved(),
        options: { "com.docker.network.bridge.name": CONTAINER_LINK },
        labels: { [OWNER_LABEL]: options.owner() },
      },
      signal,
    );
  }

  /** Runs changes one after another, and counts them until they are done. */
  function serially<T>(work: () => Promise<T>): Promise<T> {
    under += 1;
    return queue(work).finally(() => (under -= 1));
  }

  async function restore(
    engine: NetworkEngine,
    makeLink: Parameters<ContainerNetwork["restore"]>[1],
    signal: AbortSignal,
  ): Promise<boolean> {
    const subnet = options.subnet();
    const networks = await engine.listNetworks([`${OWNER_LABEL}=${options.owner()}`], signal);
    if (networks.find(isOurs)?.subnets.includes(subnet) !== true) return false;
    await makeLink({ address: options.gateway(), prefixLength: Number(subnet.split("/")[1]) });
    return true;
  }

  return {
    name,
    ensure: (engine, signal) => serially(() => ensure(engine, signal)),
    restore: (engine, makeLink, signal) => serially(() => restore(engine, makeLink, signal)),
    async stands(engine, signal) {
      const subnet = options.subnet();
      checkRange(subnet, options.addresses());
      const networks = await engine.listNetworks([`${OWNER_LABEL}=${options.owner()}`], signal);
      return under === 0 && networks.find(isOurs)?.subnets.includes(subnet) === true;
    },
    async remove(engine, signal) {
      const networks = await engine.listNetworks([`${OWNER_LABEL}=${options.owner()}`], signal);
      const found = networks.find(isOurs);
      if (found !== undefined) await engine.removeNetwork(found.id, signal);
    },
  };
}

/** @throws {HostError} `address-conflict`. */
function checkRange(subnet: string, addresses: ReadonlyMap<string, readonly string[]>): void {
  if (addressRange(subnet) === undefined) throw new HostError("bad-range", `${subnet} is no range for containers`);
  const conflict = rangeConflict(subnet, addresses);
  if (conflict !== undefined) throw new HostError("address-conflict", conflict);
}

/** Returns the conflict with a link that has an address in the containers' range, if there is one. Pure. */
export function rangeConflict(subnet: string, addresses: ReadonlyMap<string, readonly string[]>): string | undefined {
  const range = addressRange(subnet);
  if (range === undefined) return undefined;
  for (const [link, own] of addresses) {
    if (link === CONTAINER_LINK) continue;
    const inside = own.map((text) => text.replace(/\/.*$/, "")).find((address) => isWithin(address, range));
    if (inside === undefined) continue;
    return `${link} has ${inside}, which is within ${subnet}: containers need a range of their own (network.bridgeCIDR)`;
  }
  return undefined;
}

/** Rejects a range that overlaps a link's network, whose packets the bridge would capture. @throws {HostError} `address-conflict`. */
function checkLinks(subnet: string, addresses: ReadonlyMap<string, readonly string[]>): void {
  for (const [link, own] of addresses) {
    const other = link === CONTAINER_LINK ? undefined : own.find((text) => overlap(text, subnet));
    if (other === undefined) continue;
    const message = `${link} has ${other}, whose network overlaps ${subnet}: containers need a range of their own (network.bridgeCIDR)`;
    throw new HostError("address-conflict", message);
  }
}

/** @throws {HostError} `address-conflict`. */
function checkOthers(subnet: string, networks: readonly NetworkSummary[]): void {
  for (const { name, subnets } of networks) {
    const other = subnets.find((one) => overlap(one, subnet));
    if (other === undefined) continue;
    const message = `network ${name} of the engine has ${other}, which overlaps ${subnet}: containers need a range of their own (network.bridgeCIDR)`;
    throw new HostError("address-conflict", message);
  }
}

function overlap(one: string, other: string): boolean {
  const [a, b] = [addressRange(one), addressRange(other)];
  if (a === undefined || b === undefined) return false;
  return Buffer.compare(a.low, b.high) <= 0 && Buffer.compare(b.low, a.high) <= 0;
}

function isWithin(address: string, { low, high }: AddressRange): boolean {
  const own = addressRange(address)?.low;
  return own !== undefined && Buffer.compare(own, low) >= 0 && Buffer.compare(own, high) <= 0;
}
