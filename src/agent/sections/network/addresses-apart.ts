import type { NetworkState } from "../../../host/network/state/state.ts";
import { addressesOf, vrfOf } from "./contexts.ts";
import type { Member } from "./context.ts";

/** An address that a member cannot have, since a member of another context has it. */
export interface HeldElsewhere {
  readonly address: string;
  readonly by: Member;
}

/**
 * Returns the members, by link, whose address belongs to another context. Without VRF devices a rule finds the table of this machine's
 * packets by address alone, so the second member would get no replies. The default context takes precedence, since it may lead to the
 * control plane. Pure.
 */
export function heldElsewhere(members: readonly Member[], state: NetworkState): ReadonlyMap<string, HeldElsewhere> {
  const isDefault = (member: Member): boolean => vrfOf(member) === undefined;
  const holders = new Map<string, Member>();
  const refused = new Map<string, HeldElsewhere>();
  for (const member of [...members.filter(isDefault), ...members.filter((one) => !isDefault(one))]) {
    const addresses = [...new Set([...addressesOf(member, state), ...ofRole(member)].map(hostOf))];
    const address = addresses.find((one) => {
      const holder = holders.get(one);
      return holder !== undefined && vrfOf(holder) !== vrfOf(member);
    });
    const by = address === undefined ? undefined : holders.get(address);
    if (address !== undefined && by !== undefined) refused.set(member.link, { address, by });
    else for (const one of addresses) if (!holders.has(one)) holders.set(one, member);
  }
  return refused;
}

/** Returns the addresses that a member has, or gets as the active member of a cluster: they must be free when the role changes. */
function ofRole({ nic, vlan }: Member): readonly string[] {
  if (vlan !== undefined) return vlan.roleBound ?? [];
  return nic.clusterIp === undefined ? [] : [nic.clusterIp];
}

const hostOf = (address: string): string => address.split("/", 1)[0] ?? "";
