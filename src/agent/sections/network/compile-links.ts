import {
  OUR_PROTOCOL,
  type AddressTarget,
  type LinkTarget,
  type NetworkState,
} from "../../../host/network/state/state.ts";
import type { Issue } from "../../../protocol/documents/reconcile.ts";
import type { NetworkInterface, SubInterface } from "../../../protocol/sections/network/config.ts";
import { networkIssue, pathOf, type NetworkActual, type NetworkDesired } from "./actual.ts";
import { tablesOf, vrfOf, type Member, addressesOf } from "./contexts.ts";
import { defined } from "../../../lib/defined.ts";

/** RTPROT_KERNEL: routes that the kernel adds with addresses. */
const KERNEL_PROTOCOL = 2;
/** RTPROT_DHCP: routes of a lease. */
const DHCP_PROTOCOL = 16;

/** Links of the section, and the issues that keep some from being applied. */
export interface CompiledLinks {
  readonly links: readonly LinkTarget[];
  readonly addresses: readonly AddressTarget[];
  readonly members: readonly Member[];
  readonly dhcp: ReadonlySet<string>;
  readonly waits: readonly Issue[];
}

/** Compiles interfaces, VLANs and VRF devices with their addresses. */
export function compileLinks(desired: NetworkDesired, actual: NetworkActual): CompiledLinks {
  const { config } = desired;
  const { state, features } = actual;
  const known = new Map(state.links.map((link) => [link.name, link]));
  const waits: Issue[] = [];
  const links: LinkTarget[] = vrfDevices(desired, actual);
  const members: Member[] = [];
  const dhcp = new Set<string>();
  const wait = (name: string, code: string, text: string): void => {
    waits.push(networkIssue(pathOf(desired, name), code, text));
  };
  const masterOf = (vrf: string | undefined): { master?: string } =>
    vrf === undefined || !features.vrf ? {} : { master: vrf };
  for (const nic of config.interfaces) {
    const found = known.get(nic.nic);
    if (found === undefined || found.isOurs) {
      wait(nic.nic, "no-interface", `this machine has no interface ${nic.nic}`);
      continue;
    }
    const refused = refusalOf(nic, actual);
    if (refused !== undefined) wait(nic.nic, "unsupported", refused);
    const mtu = nic.mtu ?? Math.min(actual.defaultMtu, found.maxMtu ?? actual.defaultMtu);
    links.push({
      name: nic.nic,
      ...masterOf(nic.vrf),
      mtu,
      isUp: true,
      ...(nic.fixed === undefined || refused !== undefined ? {} : { fixed: nic.fixed }),
    });
    if (nic.dhcp && !features.dhcp) {
      wait(nic.nic, "unsupported", features.reasons.get("dhcp") ?? "this machine has no DHCP client");
    } else if (nic.dhcp && nic.vrf !== undefined && !features.vrf) {
      wait(nic.nic, "unsupported", "DHCP within a VRF needs VRF devices, which this kernel lacks");
    } else if (nic.dhcp) dhcp.add(nic.nic);
    members.push({ link: nic.nic, addresses: ownAddresses(nic, actual), ...gatewayOf(nic, state), nic });
    for (const vlan of nic.subInterfaces) {
      const other = known.get(vlan.link);
      const isSame = other?.kind === "vlan" && other.parent === nic.nic && other.vlanId === vlan.vlanId;
      if (!features.vlan && !isSame) {
        const reason = features.reasons.get("vlan");
        wait(
          vlan.link,
          "unsupported",
          `this machine does not support VLANs${reason === undefined ? "" : `: ${reason}`}`,
        );
      } else if (other !== undefined && !other.isOurs && !isSame) {
        wait(vlan.link, "name-taken", `${vlan.link} is the name of another link`);
      } else {
        const { link: name, vlanId } = vlan;
        links.push({ name, kind: "vlan", parent: nic.nic, vlanId, ...masterOf(vlan.vrf), mtu, isUp: true });
        members.push({ link: name, addresses: vlanAddresses(vlan, actual), nic, vlan });
      }
    }
  }
  for (const name of config.held ?? []) links.push(...switchedOff(name, undefined, state));
  const compiled = features.vrf ? { links, members } : withoutDoubles(desired, actual, { links, members }, wait);
  const addresses = compiled.members.flatMap((member) => addressTargets(member, actual));
  return { ...compiled, addresses, dhcp, waits };
}

/** Disables members, with their VLANs, whose address belongs to another context. */
function withoutDoubles(
  desired: NetworkDesired,
  { state }: NetworkActual,
  { links, members }: Pick<CompiledLinks, "links" | "members">,
  wait: (name: string, code: string, text: string) => void,
): Pick<CompiledLinks, "links" | "members"> {
  const refused = heldElsewhere(members, state);
  for (const [link, { address, by }] of refused) {
    const vrf = vrfOf(by);
    const where = `${vrf === undefined ? "the default context" : `the VRF ${vrf}`} by ${pathOf(desired, by.link)}`;
    const text = `${address} is held in ${where}, and without VRF devices, which this kernel lacks, two contexts cannot share it`;
    wait(link, "address-taken", `${text}; ${link} is held down`);
  }
  const isHeld = ({ link, nic }: Member): boolean => refused.has(link) || refused.has(nic.nic);
  const held = members.filter(isHeld);
  const names = new Set(held.map(({ link }) => link));
  const off = held.flatMap(({ link, vlan }) => (vlan === undefined ? switchedOff(link, undefined, state) : []));
  return {
    links: [...links.filter(({ name }) => !names.has(name)), ...off],
    members: members.filter((member) => !isHeld(member)),
  };
}

/**
 * Returns a link to be set down, which loses all its routes. A link with addresses or routes of other programs stays up, since Holdfast
 * could not restore them; those of our own DHCP client do not count.
 */
export function switchedOff(name: string, mtu: number | undefined, state: NetworkState): readonly LinkTarget[] {
  if (!state.links.some((link) => link.name === name && !link.isOurs)) return [];
  const isLeasing = state.dhcp.has(name);
  const own = new Set([OUR_PROTOCOL, KERNEL_PROTOCOL, ...(isLeasing ? [DHCP_PROTOCOL] : [])]);
  const isForeign =
    state.addresses.some(({ link, isOurs, isDynamic }) => link === name && !isOurs && !(isLeasing && isDynamic)) ||
    state.routes.some(({ link, protocol }) => link === name && !own.has(protocol));
  const isUp = isForeign && state.links.some((link) => link.name === name && link.isUp);
  return [{ name, ...defined({ mtu }), isUp }];
}

/** VRF devices, if the kernel supports them. */
function vrfDevices(desired: NetworkDesired, actual: NetworkActual): LinkTarget[] {
  if (!actual.features.vrf) return [];
  return [...tablesOf(desired, actual)].map(([name, table]) => ({ name, kind: "vrf", table, isUp: true }));
}

/** Returns the interface's own and additional addresses, and the cluster's while this member is active. */
function ownAddresses(nic: NetworkInterface, { isActiveMember }: NetworkActual): readonly string[] {
  const shared = nic.clusterIp === undefined || !isActiveMember ? [] : [`${nic.clusterIp}/32`];
  return [...(nic.ip === undefined ? [] : [nic.ip]), ...nic.addIps, ...shared];
}

/** Returns why the speed stays: the driver rejected it. Another speed is attempted. */
function refusalOf({ nic, fixed }: NetworkInterface, { unfixable }: NetworkActual): string | undefined {
  const refused = unfixable.get(nic);
  const isSame = refused?.speedMbps === fixed?.speedMbps && refused?.duplex === fixed?.duplex;
  if (refused === undefined || !isSame) return undefined;
  return `its speed stays as it is: the driver cannot fix ${refused.speedMbps} Mbit/s ${refused.duplex} duplex (${refused.reason})`;
}

/** Returns a VLAN's addresses; the cluster's only while this member is active. */
function vlanAddresses(
  { ip, addIps, roleBound = [] }: SubInterface,
  { isActiveMember }: NetworkActual,
): readonly string[] {
  return [ip, ...addIps].filter((address) => isActiveMember || !roleBound.includes(address));
}

/** Returns the configured next hop, or that of the lease. */
function gatewayOf({ nic, dhcp, gateway }: NetworkInterface, state: NetworkState): { gateway?: string } {
  if (gateway !== undefined) return { gateway };
  if (!dhcp) return {};
  const offered = state.leases?.[nic]?.router;
  if (offered !== undefined) return { gateway: offered };
  const leased = state.routes.find(
    ({ link, destination, via, protocol }) =>
      protocol !== OUR_PROTOCOL && link === nic && destination === "0.0.0.0/0" && via !== undefined,
  );
  return leased?.via === undefined ? {} : { gateway: leased.via };
}

/** Without VRF devices, addresses of VRFs get no kernel route in the table main. */
function addressTargets(member: Member, { features }: NetworkActual): readonly AddressTarget[] {
  const isApart = vrfOf(member) !== undefined && !features.vrf;
  const seen = [...new Set(member.addresses)];
  return seen.map((address) =>
    isApart ? { link: member.link, address, hasNoRoute: true } : { link: member.link, address },
  );
}

/** An address that a member cannot have, since a member of another context has it. */
interface HeldElsewhere {
  readonly address: string;
  readonly by: Member;
}

/**
 * Returns the members, by link, whose address belongs to another context. Without VRF devices a rule finds the table of this machine's
 * packets by address alone, so the second member would get no replies. The default context takes precedence, since it may lead to the
 * control plane. Pure.
 */
function heldElsewhere(members: readonly Member[], state: NetworkState): ReadonlyMap<string, HeldElsewhere> {
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
