import type { NetworkState } from "../../../host/network/state/state.ts";
import { isInBlock } from "../../../lib/net/cidr.ts";
import type { NetworkActual, NetworkDesired } from "./actual.ts";
import type { Member, Context } from "./context.ts";

/** The table of the default context. */
export const MAIN_TABLE = 254;
const FIRST_VRF_TABLE = 1000;

/** The default context, then the VRFs, with the interfaces that belong to each. */
export function contextsOf(
  desired: NetworkDesired,
  actual: NetworkActual,
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

/** The VRF of an interface or VLAN; none is the default context. */
export function vrfOf({ nic, vlan }: Member): string | undefined {
  return vlan === undefined ? nic.vrf : vlan.vrf;
}

/** A table for each VRF. One that had a table keeps it, whatever comes and goes beside it. */
export function tablesOf({ config }: NetworkDesired, { record }: NetworkActual): ReadonlyMap<string, number> {
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

/** The addresses that a member has or gets, those of its lease among them. */
export function addressesOf(member: Member, state: NetworkState): readonly string[] {
  const leased = state.addresses.filter(({ link, isDynamic }) => isDynamic && link === member.link);
  return [...member.addresses, ...leased.map(({ address }) => address)];
}

/** Whether an address is in the network of another, written with its prefix length. */
export function isWithin(network: string, address: string): boolean {
  return isInBlock(address, network);
}
