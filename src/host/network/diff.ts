import { parseCidr } from "../../lib/net/cidr.ts";
import type { Change } from "./change.ts";
import { diffLinks, type LinkPlan } from "./diff-links.ts";
import { diffRoutes, waitingForLease } from "./diff-routes.ts";
import { firewallDigest } from "./firewall/firewall.ts";
import {
  addressLine,
  deleteAddressLine,
  deleteRuleLine,
  ruleLine,
  subnetRouteLine,
  swapAddressLines,
} from "./ip/lines.ts";
import {
  OUR_PROTOCOL,
  type AddressState,
  type AddressTarget,
  type NetworkState,
  type NetworkTarget,
  type RuleState,
} from "./state/state.ts";

/**
 * Returns the changes from the current to the desired state. A replacement is applied before the old object is removed: lines of
 * `ip` add first and remove last. Pure; empty if nothing differs.
 */
export function diffNetwork(state: NetworkState, target: NetworkTarget): readonly Change[] {
  const links = diffLinks(state, target);
  const addresses = diffAddresses(state, target, links);
  const { emptied, interrupted } = addresses;
  const flushed = new Set([...links.flushed, ...interrupted]);
  const routes = diffRoutes(state, target, { ...links, flushed, emptied });
  const rules = diffRules(state, target, links);
  const stopping = [...state.dhcp].filter((link) => !target.dhcp.has(link));
  // A running client cannot change how it sets its lease's routes.
  const restarting = [...state.dhcp].filter(
    (link) => target.dhcp.has(link) && leavesGateway(state, link) !== leavesGateway(target, link),
  );
  const lines = [
    ...links.added,
    ...addresses.added,
    ...lostSubnets(state, target, stopping).map(subnetRouteLine),
    ...routes.added,
    ...rules.added,
    ...rules.removed,
    ...routes.removed,
    ...addresses.removed,
    ...routes.again,
    ...links.removed,
  ];
  const nft = firewallChange(state, target);
  const appears = (name: string): boolean =>
    links.makes(name) || (nft?.text !== undefined && name.startsWith("net.netfilter."));
  const ending = [...stopping, ...restarting];
  const { first, last, afterStop } = sysctlChanges(state, target, appears, addresses.promoting, ending);
  const stops = stopping.map((link) => ({ kind: "dhcp", link, run: false }) as const);
  // All routes of a link go with its last address, so routes that stay are added after that. A client can release its lease only
  // while its link is up.
  const off = new Set(target.links.flatMap(({ name, isUp }) => (isUp ? [] : [name])));
  const isEarly = (link: string): boolean => addresses.released.has(link) || off.has(link);
  // Forwarding stops before the firewall is removed.
  const isOpened = nft !== undefined && target.firewall === undefined;
  const nameServers = resolverChange(state, target);
  return [
    ...first,
    ...stops.filter(({ link }) => isEarly(link)),
    ...(lines.length === 0 ? [] : [{ kind: "ip", lines } as const]),
    ...(isOpened ? last : []),
    ...(nft === undefined ? [] : [nft]),
    ...(isOpened ? [] : last),
    ...links.ethtool,
    ...restarting.map((link) => ({ kind: "dhcp", link, run: false }) as const),
    ...[...target.dhcp]
      .filter((link) => (!state.dhcp.has(link) || restarting.includes(link)) && links.has(link))
      .map((link) => startOf(link, target)),
    ...(nameServers === undefined ? [] : [nameServers]),
    ...stops.filter(({ link }) => !isEarly(link)),
    ...(addresses.swappedLast.length === 0 ? [] : [{ kind: "ip", lines: addresses.swappedLast } as const]),
    ...afterStop,
  ];
}

const leavesGateway = ({ dhcpWithoutGateway = [] }: NetworkState | NetworkTarget, link: string): boolean =>
  dhcpWithoutGateway.includes(link);

function startOf(link: string, target: NetworkTarget): Change {
  return { kind: "dhcp", link, run: true, ...(leavesGateway(target, link) ? { withoutGateway: true } : {}) };
}

/** RTPROT_KERNEL and RT_TABLE_MAIN of rtnetlink(7). */
const KERNEL_PROTOCOL = 2;
const MAIN_TABLE = 254;

/** Yields the sysctl(8) names of the sysctls that a target depends on. */
export function* sysctlsOf(target: NetworkTarget): Iterable<string> {
  yield* target.sysctls.keys();
  for (const link of new Set(target.addresses.map(({ link }) => link))) yield promotionOf(link);
}

/** Returns a link's sysctl by its sysctl(8) name: a dot in the link's name becomes a slash. */
export function linkSysctl(link: string, name: string): string {
  return `net.ipv4.conf.${link.replaceAll(".", "/")}.${name}`;
}

interface AddressPlan {
  readonly added: readonly string[];
  readonly removed: readonly string[];
  /** Replacements to make after the clients that interfere have stopped. */
  readonly swappedLast: readonly string[];
  /** Links that lose an address whose subnet another address stays in; the kernel would remove that too. */
  readonly promoting: ReadonlySet<string>;
  /** Links whose client stops first, because their routes stay without any address. */
  readonly released: ReadonlySet<string>;
  /** Links that lose their last address, and with it all their routes. */
  readonly emptied: ReadonlySet<string>;
  /** Links that temporarily have no address and so lose all their routes. */
  readonly interrupted: ReadonlySet<string>;
}

function diffAddresses(state: NetworkState, target: NetworkTarget, links: LinkPlan): AddressPlan {
  const there = state.addresses.filter(({ link }) => !links.renewed.has(link) && !links.gone.has(link));
  const known = new Map(there.map((address) => [addressKey(address), address]));
  const wanted = new Map(target.addresses.map((address) => [addressKey(address), address]));
  const waiting = waitingForLease(state, target);
  // A lease that ends with its client is not permanent.
  const isLasting = (address: AddressState): boolean =>
    !address.isDynamic || !state.dhcp.has(address.link) || target.dhcp.has(address.link);
  const possible = [...wanted].filter(([, { link }]) => links.has(link));
  const added = possible.flatMap(([key, address]) => {
    const found = known.get(key);
    return found === undefined || !isLasting(found) ? [address] : [];
  });
  // A leased address becomes permanent while its client still runs, which then leaves it alone.
  const taken = new Set(added.filter((address) => known.has(addressKey(address))));
  const isLate = target.isExact === true ? outOfOrder(there) : () => false;
  // The kernel cannot add or remove the subnet route of an existing address, or reorder addresses.
  const swapped = possible.flatMap(([key, address]) => {
    const found = known.get(key);
    const isBehind = isLate(address, found);
    const isOther = found !== undefined && (found.hasNoRoute ?? false) !== (address.hasNoRoute ?? false);
    return (isOther && (found.isOurs || taken.has(address))) || (isBehind && found?.isOurs === true) ? [address] : [];
  });
  // A running client would be confused by the change.
  const isHeldBack = ({ link }: AddressTarget): boolean => state.dhcp.has(link) && !target.dhcp.has(link);
  const swap = (address: AddressTarget): readonly string[] =>
    swapAddressLines(address, (other) => !known.has(addressKey(other)) && !wanted.has(addressKey(other)));
  const removed = there.filter(
    (address) => address.isOurs && !wanted.has(addressKey(address)) && !waiting.has(address.link),
  );
  const going = new Set(removed);
  const left: readonly AddressTarget[] = [...there.filter((address) => !going.has(address)), ...added];
  const subnets = new Set(left.map(subnetKey));
  const lasting: readonly AddressTarget[] = [...there.filter((one) => !going.has(one) && isLasting(one)), ...added];
  const inhabited = new Set(lasting.map(({ link }) => link));
  const isRouted = (link: string): boolean => target.routes.some((route) => route.link === link);
  // Without a lease no address is removed, and so no routes are lost.
  const isLeasedAlone = (link: string): boolean => {
    const own = there.filter((one) => one.link === link);
    return own.length > 0 && !own.some(isLasting);
  };
  const released = new Set(
    [...state.dhcp].filter((link) => !target.dhcp.has(link) && isRouted(link) && !inhabited.has(link)),
  );
  const promoting = removed.filter((address) => subnets.has(subnetKey(address)));
  return {
    added: [...added.map(addressLine), ...swapped.filter((address) => !isHeldBack(address)).flatMap(swap)],
    swappedLast: swapped.filter(isHeldBack).flatMap(swap),
    // The first address of a subnet takes the later ones with it.
    removed: removed.toReversed().map(deleteAddressLine),
    released,
    promoting: new Set([...promoting, ...swapped].map(({ link }) => link)),
    emptied: new Set(removed.map(({ link }) => link).filter((link) => !inhabited.has(link))),
    interrupted: new Set([...released].filter(isLeasedAlone)),
  };
}

/**
 * Returns a function that reports, for the desired addresses in order, whether an address must move behind another of its subnet
 * that is new or currently behind it. The first address of a subnet is the primary one.
 */
function outOfOrder(there: readonly AddressState[]): (address: AddressTarget, found?: AddressState) => boolean {
  const last = new Map<string, number>();
  return (address, found) => {
    const subnet = subnetKey(address);
    const before = last.get(subnet) ?? -1;
    const at = found === undefined ? there.length : there.indexOf(found);
    last.set(subnet, Math.max(before, at));
    return at < before;
  };
}

/**
 * Returns our permanent addresses whose subnet route is missing. A DHCP client replaces that route by its own, and does not
 * restore it when it exits.
 */
function lostSubnets(
  { addresses, links, routes }: NetworkState,
  target: NetworkTarget,
  stopping: readonly string[],
): readonly (AddressTarget & { readonly table: number })[] {
  const wanted = new Set(target.addresses.filter(({ hasNoRoute }) => hasNoRoute !== true).map(addressKey));
  return addresses.flatMap(({ link, address, isOurs, isDynamic }) => {
    const isStaying = (isDynamic || isOurs) && stopping.includes(link) && wanted.has(addressKey({ link, address }));
    if (!isStaying || address.endsWith("/32")) return [];
    const subnet = parseCidr(address)?.text;
    const hasRoute = routes.some(
      (route) => route.link === link && route.destination === subnet && route.protocol === KERNEL_PROTOCOL,
    );
    const { master } = links.find(({ name }) => name === link) ?? {};
    const table = links.find(({ name }) => name === master)?.table ?? MAIN_TABLE;
    return hasRoute ? [] : [{ link, address, table }];
  });
}

function addressKey({ link, address }: AddressTarget): string {
  return `${link} ${address}`;
}

function subnetKey({ link, address }: AddressTarget): string {
  return `${link} ${parseCidr(address)?.text ?? address}`;
}

function diffRules(
  state: NetworkState,
  target: NetworkTarget,
  links: LinkPlan,
): { readonly added: readonly string[]; readonly removed: readonly string[] } {
  const known = new Set(state.rules.map(ruleKey));
  const wanted = new Map(target.rules.map((rule) => [ruleKey(rule), rule]));
  return {
    added: [...wanted].flatMap(([key, rule]) => (known.has(key) || !namesExist(rule, links) ? [] : [ruleLine(rule)])),
    removed: state.rules.flatMap((rule) =>
      rule.protocol === OUR_PROTOCOL && !wanted.has(ruleKey(rule)) ? [deleteRuleLine(rule)] : [],
    ),
  };
}

/** Reports whether the links of a rule exist; the kernel would accept missing ones, but such a rule is useless. */
function namesExist({ inLink, outLink }: Omit<RuleState, "protocol">, links: LinkPlan): boolean {
  return (inLink === undefined || links.has(inLink)) && (outLink === undefined || links.has(outLink));
}

function ruleKey(rule: Omit<RuleState, "protocol">): string {
  const { priority, from, to, inLink, outLink, mark, mask = 0xffff_ffff, table, suppressLength } = rule;
  const marked = mark === undefined ? undefined : mask;
  return [priority, from, to, inLink, outLink, mark, marked, table, suppressLength].join(" ");
}

function firewallChange(state: NetworkState, target: NetworkTarget): Extract<Change, { kind: "nft" }> | undefined {
  const { firewall: text } = target;
  if (target.keepsFirewall === true) return undefined;
  if (text === undefined) return state.firewall === undefined ? undefined : { kind: "nft", text: undefined };
  const isThere = state.firewall?.digest === firewallDigest(text);
  return isThere ? undefined : { kind: "nft", text };
}

function promotionOf(link: string): string {
  return linkSysctl(link, "promote_secondaries");
}

/**
 * Returns the sysctls to set before and after the lines of `ip`. While an address of a subnet is replaced, or a client removes
 * its address, the link promotes secondary addresses; the setting is restored afterwards.
 */
function sysctlChanges(
  state: NetworkState,
  target: NetworkTarget,
  /** Whether a value does not exist yet but will. */
  appears: (name: string) => boolean,
  promoting: ReadonlySet<string>,
  stopping: readonly string[],
): Readonly<Record<"first" | "last" | "afterStop", readonly Change[]>> {
  const isStopping = new Set(stopping.map(promotionOf));
  const others = [...target.addresses, ...state.addresses.filter(({ isDynamic }) => !isDynamic)];
  const kept = stopping.filter(
    (link) => state.sysctls.has(promotionOf(link)) && others.some((address) => address.link === link),
  );
  const promoted = [...new Set([...promoting, ...kept])]
    .map(promotionOf)
    .filter((name) => state.sysctls.get(name) !== "1");
  const back = promoted.flatMap((name) => {
    const former = target.sysctls.get(name) ?? state.sysctls.get(name);
    return former === undefined || former === "1" ? [] : [[name, former] as const];
  });
  const isPromoted = new Set(promoted);
  const values = [...target.sysctls].filter(([name, value]) => {
    const now = state.sysctls.get(name);
    return !isPromoted.has(name) && now !== value && (now !== undefined || appears(name));
  });
  const all = [...values, ...back];
  const setting = (chosen: typeof all): readonly Change[] =>
    chosen.length === 0 ? [] : [{ kind: "sysctl", values: chosen }];
  return {
    first: promoted.length === 0 ? [] : [{ kind: "sysctl", values: promoted.map((name) => [name, "1"] as const) }],
    last: setting(all.filter(([name]) => !isStopping.has(name))),
    afterStop: setting(all.filter(([name]) => isStopping.has(name))),
  };
}

function resolverChange(state: NetworkState, target: NetworkTarget): Change | undefined {
  const { nameServers: servers } = target;
  const isSame = servers?.join(" ") === state.nameServers?.join(" ");
  return isSame ? undefined : { kind: "resolver", servers };
}
