import { linkSysctl } from "../../../host/network/diff.ts";
import type { NetworkRecord } from "../../../host/network/state/record.ts";
import {
  OUR_PROTOCOL,
  type LinkTarget,
  type NetworkState,
  type NetworkTarget,
} from "../../../host/network/state/state.ts";
import type { Issue } from "../../../protocol/documents/reconcile.ts";
import type { NetworkConfig, NetworkInterface } from "../../../protocol/sections/network/config.ts";
import { networkIssue, type NetworkActual, type NetworkDesired } from "./actual.ts";
import { compileFirewall } from "./compile-firewall.ts";
import { compileLinks, switchedOff } from "./compile-links.ts";
import { compileRoutes, membersApart } from "./compile-routes.ts";
import { compileRules, compilePathSources } from "./compile-rules.ts";
import { contextsOf, MAIN_TABLE, tablesOf, type Context } from "./contexts.ts";
import { IP_FORWARD } from "./forwarding.ts";
import { FLOW_SYSCTLS, INITIAL_FLOW_SYSCTLS } from "./flow-times.ts";
import { wanConflicts, wanLinkOf, wanOf } from "./wan.ts";
import { defined } from "../../../lib/defined.ts";

/** Settings of a link. */
const LINK_SYSCTLS = ["rp_filter", "arp_ignore", "promote_secondaries"] as const;

/** The compiled section. */
export interface CompiledNetwork {
  readonly target: NetworkTarget;
  /** Issues: parts that cannot be applied on this machine. */
  readonly waits: readonly Issue[];
  /** Items that are applied differently from how they are written. */
  readonly notices: readonly Issue[];
  /** Original state of the machine that must be recorded. */
  readonly record: NetworkRecord;
}

/** Compiles the section to the target state of the machine. Pure. */
export function compileNetwork(desired: NetworkDesired, actual: NetworkActual): CompiledNetwork {
  const { config } = desired;
  const { state, record } = actual;
  const wan = wanOf(config.interfaces, actual);
  const compiled = compileLinks(desired, actual);
  const contexts = contextsOf(desired, actual, compiled.members);
  const routes = compileRoutes(desired, actual, contexts, wan);
  const sources = compilePathSources(contexts, actual, wan);
  const firewall = compileFirewall(desired, actual, contexts);
  const kept = keptThings(desired, actual, wan !== undefined);
  const named = new Set([...compiled.links.map(({ name }) => name), ...kept.links]);
  const sysctls = new Map([...apartSysctls(contexts, actual), ...firewall.sysctls]);
  // Settings that are no longer desired get their original value.
  const former = Object.entries(record.sysctls).filter(([name]) => !sysctls.has(name));
  const dhcp = new Set([...compiled.dhcp, ...kept.dhcp]);
  const target: NetworkTarget = {
    links: [...compiled.links, ...kept.madeLinks, ...releasedLinks(named, actual)],
    addresses: [...compiled.addresses, ...kept.addresses],
    routes: [...routes.routes, ...firewall.routes, ...sources.routes, ...kept.routes],
    rules: [...compileRules(contexts, firewall.marked, actual), ...sources.rules, ...kept.rules],
    ...defined({ firewall: firewall.text }),
    sysctls: new Map([...sysctls, ...former]),
    dhcp,
    ...withoutGateway(compiled.dhcp, kept.dhcp, desired, actual, wan),
    ...(nameServersOf(wan, actual) ?? kept.nameServers),
  };
  return {
    target,
    waits: [...compiled.waits, ...routes.waits, ...firewall.waits, ...tunnelWaits(desired)],
    notices: [...wanConflicts(desired, actual), ...routes.notices],
    record: {
      ...wanRecord(wan?.nic ?? wanLinkOf(actual)),
      links: formerLinks(new Set(compiled.links.map(({ name }) => name)), kept.links, actual),
      sysctls: Object.fromEntries(
        [...sysctls.keys()].flatMap((name) => {
          const value = record.sysctls[name] ?? state.sysctls.get(name) ?? INITIAL_FLOW_SYSCTLS.get(name);
          return value === undefined ? [] : [[name, value]];
        }),
      ),
      vrfs: Object.fromEntries(tablesOf(desired, actual)),
      firewalls: firewall.text === undefined ? [] : [{ digest: firewall.digest, text: firewall.text }],
    },
  };
}

/** Sysctls that the section may set, on any machine. */
export function sysctlNames(config: NetworkConfig | undefined, record: NetworkRecord): readonly string[] {
  const nics = config?.interfaces ?? [];
  const vlans = nics.flatMap(({ subInterfaces }) => subInterfaces);
  const links = [...nics.map(({ nic }) => nic), ...vlans.map(({ link }) => link)];
  const each = new Set([...links, ...Object.keys(record.links)]);
  return [
    IP_FORWARD,
    "net.ipv4.conf.all.rp_filter",
    ...FLOW_SYSCTLS.map(([name]) => name),
    ...Object.keys(record.sysctls),
    ...[...each].flatMap((link) => LINK_SYSCTLS.map((name) => linkSysctl(link, name))),
  ];
}

/**
 * Disables reverse path filtering, which ignores rules by interface and would drop packets of a VRF; limits ARP replies to the addresses of
 * the link, since another VRF may have the same address elsewhere.
 */
function apartSysctls(
  contexts: readonly Context[],
  { features }: NetworkActual,
): readonly (readonly [string, string])[] {
  if (features.vrf) return [];
  return membersApart(contexts).flatMap(({ member: { link } }) => [
    [linkSysctl(link, "rp_filter"), "0"] as const,
    [linkSysctl(link, "arp_ignore"), "1"] as const,
  ]);
}

/** Returns links whose DHCP client ignores the lease's default route. Only the WAN and interfaces with a configured gateway use it. */
function withoutGateway(
  wanted: ReadonlySet<string>,
  kept: ReadonlySet<string>,
  { config }: NetworkDesired,
  { state: { dhcpWithoutGateway = [] } }: NetworkActual,
  wan: NetworkInterface | undefined,
): Pick<NetworkTarget, "dhcpWithoutGateway"> {
  const entries = config.interfaces.filter((nic) => nic !== wan && nic.gateway === undefined && wanted.has(nic.nic));
  const links = [...entries.map(({ nic }) => nic), ...dhcpWithoutGateway.filter((link) => kept.has(link))];
  return links.length === 0 ? {} : { dhcpWithoutGateway: [...new Set(links)] };
}

/**
 * Returns the name servers of the WAN's entry, else of its lease, else, until there is a lease, the current ones. Undefined leaves the
 * system's.
 */
function nameServersOf(
  wan: NetworkInterface | undefined,
  { state }: NetworkActual,
): { readonly nameServers?: readonly string[] } | undefined {
  if (wan === undefined) return undefined;
  if (wan.dns.length > 0) return { nameServers: wan.dns };
  if (!wan.dhcp) return undefined;
  const isLeased = state.addresses.some(({ link, isDynamic }) => link === wan.nic && isDynamic);
  const leased = state.leases?.[wan.nic]?.nameServers ?? [];
  const servers = isLeased && state.dhcp.has(wan.nic) ? leased : (state.nameServers ?? []);
  return servers.length === 0 ? {} : { nameServers: servers };
}

interface Kept extends Pick<NetworkTarget, "addresses" | "routes" | "rules" | "dhcp"> {
  readonly links: readonly string[];
  readonly madeLinks: readonly LinkTarget[];
  readonly nameServers: { readonly nameServers?: readonly string[] };
}

/**
 * Returns objects that stay without being in the document: on interfaces whose entry is invalid, and on the WAN if the document names none.
 */
function keptThings({ config }: NetworkDesired, actual: NetworkActual, hasWan: boolean): Kept {
  const { state } = actual;
  const wan = hasWan ? undefined : wanLinkOf(actual);
  const isNamed = config.interfaces.some(({ nic }) => nic === wan) || (config.held ?? []).includes(wan ?? "");
  const isWanKept = wan !== undefined && !isNamed;
  const left = new Set(config.left ?? []);
  const nics = new Set([...left, ...(isWanKept ? [wan] : [])]);
  const made = state.links.filter(({ isOurs, parent }) => isOurs && parent !== undefined && nics.has(parent));
  const links = new Set([...nics, ...made.map(({ name }) => name)]);
  const isKept = ({ table, link = "" }: NetworkTarget["routes"][number]): boolean =>
    links.has(link) && (table === MAIN_TABLE || left.has(link));
  return {
    links: [...links],
    madeLinks: made.map(madeAgain),
    addresses: state.addresses.flatMap(({ link, address, isOurs, hasNoRoute }) =>
      isOurs && links.has(link) ? [hasNoRoute === true ? { link, address, hasNoRoute } : { link, address }] : [],
    ),
    routes: state.routes.flatMap(({ protocol, ...route }) =>
      protocol === OUR_PROTOCOL && isKept(route) ? [route] : [],
    ),
    rules: state.rules.flatMap(({ protocol, ...rule }) =>
      protocol === OUR_PROTOCOL && (left.has(rule.inLink ?? "") || left.has(rule.outLink ?? "")) ? [rule] : [],
    ),
    dhcp: new Set([...state.dhcp].filter((link) => links.has(link))),
    nameServers: isWanKept && state.nameServers !== undefined ? { nameServers: state.nameServers } : {},
  };
}

function madeAgain({ name, parent, vlanId, mtu, isUp, master }: NetworkState["links"][number]): LinkTarget {
  return {
    name,
    kind: "vlan",
    mtu,
    isUp,
    ...defined({ parent, vlanId, master }),
  };
}

/** Sets interfaces down that left the document, and restores their MTU. */
function releasedLinks(named: ReadonlySet<string>, { state, record }: NetworkActual): readonly LinkTarget[] {
  return Object.entries(record.links).flatMap(([name, { mtu }]) =>
    named.has(name) ? [] : switchedOff(name, mtu, state),
  );
}

const wanRecord = (wan: string | undefined): Pick<NetworkRecord, "wan"> => (wan === undefined ? {} : { wan });

/** Returns the original state of adjusted links; of kept ones only what is recorded already. */
function formerLinks(
  named: ReadonlySet<string>,
  kept: readonly string[],
  { state, record }: NetworkActual,
): NetworkRecord["links"] {
  const isKept = (name: string): boolean => kept.includes(name) && Object.hasOwn(record.links, name);
  const adjusted = state.links.filter(({ name, isOurs }) => !isOurs && (named.has(name) || isKept(name)));
  return Object.fromEntries(adjusted.map(({ name, mtu, isUp }) => [name, record.links[name] ?? { mtu, isUp }]));
}

function tunnelWaits({ config }: NetworkDesired): readonly Issue[] {
  return config.tunnels
    .filter(({ enabled }) => enabled)
    .map(({ type, name }, index) =>
      networkIssue(
        `network.tunnels.${index}`,
        "unsupported",
        `this version of the node does not support ${type} tunnels (${name})`,
      ),
    );
}
