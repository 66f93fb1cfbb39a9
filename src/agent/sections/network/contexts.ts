import type { NetworkRecord } from "../../../host/network/state/record.ts";
import type { NetworkState } from "../../../host/network/state/state.ts";
import { isInBlock } from "../../../lib/net/cidr.ts";
import type {
  NetworkConfig,
  NetworkInterface,
  Routing,
  SubInterface,
} from "../../../protocol/sections/network/config.ts";

/** An interface or VLAN that is in use. */
export interface Member {
  readonly link: string;
  /** With prefix lengths; addresses of a lease are read from the machine. */
  readonly addresses: readonly string[];
  /** Next hop of routes that name none. */
  readonly gateway?: string;
  readonly nic: NetworkInterface;
  readonly vlan?: SubInterface;
}

/** A routing context: the default one, or a VRF. */
export interface Context {
  /** Absent for the default context. */
  readonly vrf?: string;
  readonly table: number;
  readonly routing: Routing;
  readonly forwarding: boolean;
  readonly members: readonly Member[];
}

/** Number of the table main. */
export const MAIN_TABLE = 254;
const FIRST_VRF_TABLE = 1000;

/** Returns the default context, then the VRFs, with their members. */
export function contextsOf(
  desired: { readonly config: NetworkConfig },
  actual: { readonly record: NetworkRecord },
  members: readonly Member[],
): readonly Context[] {
  const { config } = desired;
  const tables = tablesOf(desired, actual);
  const within = (vrf: string | undefined): readonly Member[] => members.filter((member) => vrfOf(member) === vrf);
  return [
    { table: MAIN_TABLE, routing: config.routing, forwarding: config.forwarding, members: within(undefined) },
    ...config.vrfs.map((vrf) => ({
      vrf: vrf.name,
      table: tables.get(vrf.name) ?? FIRST_VRF_TABLE,
      routing: vrf,
      forwarding: vrf.forwarding,
      members: within(vrf.name),
    })),
  ];
}

/** Returns the VRF of an interface or VLAN; undefined for the default context. */
export function vrfOf({ nic, vlan }: Member): string | undefined {
  return vlan === undefined ? nic.vrf : vlan.vrf;
}

/** Assigns a table to each VRF; an existing VRF keeps its table. */
export function tablesOf(
  { config }: { readonly config: NetworkConfig },
  { record }: { readonly record: NetworkRecord },
): ReadonlyMap<string, number> {
  const names = config.vrfs.map(({ name }) => name);
  const tables = new Map(
    names.flatMap((name) => {
      const known = Object.hasOwn(record.vrfs, name) ? record.vrfs[name] : undefined;
      return known === undefined ? [] : [[name, known] as const];
    }),
  );
  const taken = new Set(Object.values(record.vrfs));
  let next = FIRST_VRF_TABLE;
  for (const name of names) {
    if (tables.has(name)) continue;
    while (taken.has(next)) next += 1;
    taken.add(next);
    tables.set(name, next);
  }
  return tables;
}

/** Returns the configured addresses of a member and those of its lease. */
export function addressesOf(member: Member, state: NetworkState): readonly string[] {
  const leased = state.addresses.filter(({ link, isDynamic }) => isDynamic && link === member.link);
  return [...member.addresses, ...leased.map(({ address }) => address)];
}

/** Reports whether an address is in the network of another address with a prefix length. */
export function isWithin(network: string, address: string): boolean {
  return isInBlock(address, network);
}
