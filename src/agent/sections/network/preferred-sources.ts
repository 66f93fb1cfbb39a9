import type { AddressState } from "../../../host/network/state.ts";
import { parseCidr } from "../../../lib/cidr.ts";
import type { NetworkActual } from "./actual.ts";
import type { Member } from "./contexts.ts";

/** The source that the routes through a link name, since the kernel would take another address of the same subnet. */
export interface PreferredSource {
  /** Without its prefix length. */
  readonly source: string;
  /** The subnet that both are in. */
  readonly subnet: string;
  /** The address that the kernel has as the primary one. */
  readonly primary: AddressState;
}

/**
 * Links whose `ip` is not the primary address of its subnet, because another address was there first and stays: one of another program,
 * which Holdfast does not remove, or an additional one. Pure.
 */
export function preferredSources(
  members: readonly Member[],
  { state }: Pick<NetworkActual, "state">,
): ReadonlyMap<string, PreferredSource> {
  const found = new Map<string, PreferredSource>();
  for (const member of members) {
    const { link } = member;
    const ip = primaryOf(member);
    const subnet = ip === undefined ? undefined : parseCidr(ip)?.text;
    if (ip === undefined || subnet === undefined || ip.endsWith("/32")) continue;
    // The kernel lists the primary address of a subnet first.
    const first = state.addresses.find(
      (one) =>
        one.link === link && parseCidr(one.address)?.text === subnet && (one.address === ip || isStaying(one, member)),
    );
    if (first === undefined || first.address === ip) continue;
    found.set(link, { source: ip.split("/", 1)[0] ?? "", subnet, primary: first });
  }
  return found;

  /** Reports whether an address stays; one of a lease goes with our own client. */
  function isStaying({ address, isOurs, isDynamic }: AddressState, { link, addresses }: Member): boolean {
    return isOurs ? addresses.includes(address) : !(isDynamic && state.dhcp.has(link));
  }
}

/** The address that the document gives the link, if this member of a cluster holds it; none with DHCP. */
function primaryOf({ nic, vlan, addresses }: Member): string | undefined {
  const ip = vlan === undefined ? nic.ip : vlan.ip;
  return ip !== undefined && addresses.includes(ip) ? ip : undefined;
}
