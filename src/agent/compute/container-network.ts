import { HostError } from "../../errors.ts";
import type { Engine, NetworkSummary } from "../../host/engine/engine.ts";
import { addressRange, type AddressRange } from "../../lib/cidr.ts";
import { OWNER_LABEL } from "./own-containers.ts";

/** The bridge in the kernel; `hf-` is the prefix of the links that the section network owns. */
export const CONTAINER_LINK = "holdfast0";

export interface ContainerNetworkOptions {
  /** Uid of the node. */
  readonly owner: () => string;
  readonly subnet: () => string;
  /** Addresses that no container gets, by a name of their own. */
  readonly reserved: () => Readonly<Record<string, string>>;
  /** The bridge's own address. */
  readonly gateway: () => string;
  /** This machine's IPv4 addresses by link. */
  readonly addresses: () => ReadonlyMap<string, readonly string[]>;
}

/** The network that containers of this node are attached to. */
export interface ContainerNetwork {
  readonly name: () => string;
  /**
   * Makes it if it is not there, and anew if it is another one.
   * @throws {HostError} `address-conflict` when a link of the machine has an address in its range; of the engine.
   */
  ensure(engine: Engine, signal: AbortSignal): Promise<void>;
  /** Takes it away; done as well when there is none. */
  remove(engine: Engine, signal: AbortSignal): Promise<void>;
  /** Has the next `ensure` ask the engine: it may be another, or have lost the network. */
  forget(): void;
}

/** The network of the node's containers, made when the first of them is. */
export function containerNetwork(options: ContainerNetworkOptions): ContainerNetwork {
  const name = (): string => `holdfast-${options.owner().slice(0, 8)}`;
  let known: string | undefined;
  let running: Promise<void> = Promise.resolve();

  async function find(engine: Engine, signal: AbortSignal): Promise<NetworkSummary | undefined> {
    const networks = await engine.listNetworks([`${OWNER_LABEL}=${options.owner()}`], signal);
    return networks.find((network) => network.name === name());
  }

  async function ensure(engine: Engine, signal: AbortSignal): Promise<void> {
    const subnet = options.subnet();
    checkRange(subnet, options.addresses());
    if (known === subnet) return;
    const found = await find(engine, signal);
    if (found !== undefined && !found.subnets.includes(subnet)) await engine.removeNetwork(found.id, signal);
    if (found === undefined || !found.subnets.includes(subnet)) {
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
    known = subnet;
  }

  return {
    name,
    ensure(engine, signal) {
      // Of several that need it at once the first makes it.
      const mine = running.then(() => ensure(engine, signal));
      running = mine.catch(() => undefined);
      return mine;
    },
    async remove(engine, signal) {
      known = undefined;
      const found = await find(engine, signal);
      if (found !== undefined) await engine.removeNetwork(found.id, signal);
    },
    forget() {
      known = undefined;
    },
  };
}

/** @throws {HostError} `address-conflict`. */
function checkRange(subnet: string, addresses: ReadonlyMap<string, readonly string[]>): void {
  const range = addressRange(subnet);
  if (range === undefined) throw new HostError("bad-range", `${subnet} is no range for containers`);
  for (const [link, own] of addresses) {
    if (link === CONTAINER_LINK) continue;
    const inside = own.find((address) => isWithin(address, range));
    if (inside === undefined) continue;
    const message = `${link} has ${inside}, which is within ${subnet}: containers need a range of their own (network.bridgeCIDR)`;
    throw new HostError("address-conflict", message);
  }
}

function isWithin(address: string, { low, high }: AddressRange): boolean {
  const own = addressRange(address)?.low;
  return own !== undefined && Buffer.compare(own, low) >= 0 && Buffer.compare(own, high) <= 0;
}
