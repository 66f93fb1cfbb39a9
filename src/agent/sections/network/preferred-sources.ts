import type { AddressState } from "../../../host/network/state/state.ts";
import { parseCidr } from "../../../lib/net/cidr.ts";
import type { NetworkActual } from "./actual.ts";
import { vrfOf } from "./contexts.ts";
import type { Member } from "./context.ts";

type PrimaryAddress = Pick<AddressState, "address" | "isOurs">;

/** Source address for the routes of a link, since the kernel would choose another address of the subnet. */
export interface PreferredSource {
  /** Without its prefix length. */
  readonly source: string;
  /** Subnet of both addresses. */
  readonly subnet: string;
  /** The kernel's primary address. */
  readonly primary: PrimaryAddress;
}

/**
 * Returns links whose `ip` is not the primary address of its subnet, because an earlier address stays: one of another program, which
 * Holdfast does not remove, or an additional one. Pure.
 */
export function preferredSources(
  members: readonly Member[],
  { state, features }: Pick<NetworkActual, "state" | "features">,
): ReadonlyMap<string, PreferredSource> {
  const found = new Map<string, PreferredSource>();
  for (const member of members) {
    const { link } = member;
    const ip = primaryOf(member);
    const subnet = ip === undefined ? undefined : parseCidr(ip)?.text;
    if (ip === undefined || subnet === undefined || ip.endsWith("/32")) continue;
    const first = inOrder(member).find(({ address }) => parseCidr(address)?.text === subnet);
    if (first === undefined || first.address === ip) continue;
    found.set(link, { source: ip.split("/", 1)[0] ?? "", subnet, primary: first });
  }
  return found;

  /**
   * Returns a link's addresses after the plan, in the kernel's order, where the first of a subnet is the primary one: kept ones, new ones,
   * then those that are recreated because they get or lose the kernel's route.
   */
  function inOrder(member: Member): readonly PrimaryAddress[] {
    const { link, addresses } = member;
    const there = state.addresses.filter((one) => one.link === link);
    const isApart = vrfOf(member) !== undefined && !features.vrf;
    const isMadeAgain = ({ isOurs, hasNoRoute = false }: AddressState): boolean => isOurs && hasNoRoute !== isApart;
    // Addresses of our own DHCP client are removed with it.
    const isStaying = (one: AddressState): boolean =>
      addresses.includes(one.address) || (!one.isOurs && !(one.isDynamic && state.dhcp.has(link)));
    const remade = new Set(there.filter(isMadeAgain).map(({ address }) => address));
    const kept = there.filter((one) => isStaying(one) && !isMadeAgain(one));
    const known = new Set(there.map(({ address }) => address));
    const ours = addresses.map((address) => ({ address, isOurs: true }));
    return [
      ...kept,
      ...ours.filter(({ address }) => !known.has(address)),
      ...ours.filter(({ address }) => remade.has(address)),
    ];
  }
}

/** Returns the configured address of a link, if this cluster member holds it; none with DHCP. */
function primaryOf({ nic, vlan, addresses }: Member): string | undefined {
  const ip = vlan === undefined ? nic.ip : vlan.ip;
  return ip !== undefined && addresses.includes(ip) ? ip : undefined;
}
