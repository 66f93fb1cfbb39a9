import type { NetworkTarget, AddressState } from "../../../host/network/state/state.ts";
import { parseCidr } from "../../../lib/net/cidr.ts";
import type { Issue } from "../../../protocol/documents/reconcile.ts";
import type { NetworkInterface, VrfRoute } from "../../../protocol/sections/network/config.ts";
import { networkIssue, pathOf, type NetworkActual, type NetworkDesired } from "./actual.ts";
import { captureNotices } from "./captured.ts";
import { addressesOf, isWithin, MAIN_TABLE, vrfOf, type Context, type Member } from "./contexts.ts";

type RouteTarget = NetworkTarget["routes"][number];

/** Lowest priority of a table, so that a lookup ends here. */
const LAST_METRIC = 4_278_198_272;
const ANYWHERE = "0.0.0.0/0";

export interface CompiledRoutes {
  readonly routes: readonly RouteTarget[];
  readonly waits: readonly Issue[];
  /** Routes that others replace. */
  readonly notices: readonly Issue[];
}

/** An applied route and its path in the document. */
interface Taken {
  readonly route: RouteTarget;
  readonly path?: string;
}

/** Compiles the routes of all contexts: connected, configured, and those that isolate VRFs. */
export function compileRoutes(
  desired: NetworkDesired,
  actual: NetworkActual,
  contexts: readonly Context[],
  wan: NetworkInterface | undefined,
): CompiledRoutes {
  const waits: Issue[] = [];
  const notices: Issue[] = [];
  const routes = new Map<string, Taken>();
  const sources = preferredSources(
    contexts.flatMap(({ members }) => members),
    actual,
  );
  /**
   * Adds a route. A further route to the same destination gets a higher metric: the first in the document carries the packets, the other
   * one only if that is gone.
   */
  const add = (asked: RouteTarget, path?: string): void => {
    const route = withSource(asked, sources);
    let { metric } = route;
    let before: Taken | undefined;
    for (;;) {
      const other = routes.get(`${route.table} ${route.destination} ${metric}`);
      if (other === undefined) break;
      if (path === undefined || (other.route.via === route.via && other.route.link === route.link)) return;
      before ??= other;
      metric += 1;
    }
    const taken = { ...route, metric };
    routes.set(
      `${route.table} ${route.destination} ${metric}`,
      path === undefined ? { route: taken } : { route: taken, path },
    );
    if (before === undefined || path === undefined) return;
    const text = `${route.destination} has a route through ${before.route.link} already (${before.path ?? "of the WAN"})`;
    notices.push(networkIssue(path, "same-destination", `${text}; this one is used if that is removed`));
  };
  const hasWanDefault = wan !== undefined && (wan.dhcp || wan.gateway !== undefined);
  /** Reports whether a route competes with the WAN's default route, and adds a notice. */
  const isAgainstWan = (destination: string, context: Context, link: string, path: string): boolean => {
    if (destination !== ANYWHERE || context.vrf !== undefined || !hasWanDefault || link === wan.nic) return false;
    const text = `not used: the default route is that of the WAN ${wan.nic} (E_DEFAULT_ROUTE_BOTH)`;
    notices.push(networkIssue(path, "default-route", text));
    return true;
  };
  const wait = (path: string, code: string, text: string): void => {
    waits.push(networkIssue(path, code, text));
  };
  const wanMember = contexts
    .flatMap(({ members }) => members)
    .find(({ nic, vlan }) => nic === wan && vlan === undefined);
  if (wanMember !== undefined && wan?.dhcp === false && wan.gateway !== undefined) {
    add(routeVia(ANYWHERE, wan.gateway, wanMember, { table: MAIN_TABLE, metric: 0 }, actual));
  }
  for (const context of contexts) {
    const { vrf, table, members } = context;
    if (vrf !== undefined) add(endOf(table));
    for (const member of members) {
      const { link } = member;
      const isApart = vrf !== undefined && !actual.features.vrf;
      if (isApart) for (const route of connectedRoutes(member, table)) add(route);
      const preferred = sources.get(link);
      if (preferred !== undefined) {
        if (!isApart) add(routeOnLink(preferred.subnet, link, { table, metric: 0 }));
        notices.push(...secondaryNotice(preferred, `${pathOf(desired, link)}.ip`));
      }
      const own = member.vlan?.routes ?? member.nic.routes;
      for (const [index, { route, next }] of own.entries()) {
        const via = next ?? member.gateway;
        const path = `${pathOf(desired, link)}.routes.${index}`;
        if (isAgainstWan(route, context, link, path)) continue;
        if (via !== undefined) add(routeVia(route, via, member, { table, metric: 0 }, actual), path);
        else if (member.addresses.some((address) => isWithin(route, address.split("/", 1)[0] ?? ""))) {
          // A cloud may assign an address without its subnet.
          add(routeOnLink(route, link, { table, metric: 0 }), path);
        } else {
          wait(`${path}.next`, "no-next-hop", `${link} has no gateway to replace it`);
        }
      }
    }
    const path = vrf === undefined ? "network" : pathOf(desired, vrf);
    const isReached = onceEach((member: Member, via: string) => reaches(member, via, actual.state));
    for (const [index, route] of context.routing.routes.entries()) {
      const found = placeOf(route, context, actual);
      if (typeof found === "string") {
        const isKnown = desired.config.tunnels.some(({ name }) => name === route.dev);
        wait(
          `${path}.routes.${index}`,
          isKnown ? "unsupported" : "no-way",
          isKnown ? `no tunnels yet: ${found}` : found,
        );
      } else if (
        route.metric !== undefined ||
        !isAgainstWan(route.dest, context, found.link, `${path}.routes.${index}`)
      ) {
        const at = { table, metric: route.metric ?? 0 };
        const via = route.via ?? found.gateway;
        add(
          via === undefined
            ? routeOnLink(route.dest, found.link, at)
            : routeThrough(route.dest, via, found.link, at, isReached(found, via)),
          `${path}.routes.${index}`,
        );
      }
    }
  }
  const all = [...routes.values()];
  const addresses = contexts.flatMap(({ vrf, members }) =>
    vrf === undefined ? members.flatMap((member) => addressesOf(member, actual.state)) : [],
  );
  notices.push(...captureNotices(all, addresses, actual, wan));
  return { routes: all.map(({ route }) => route), waits, notices };
}

/** Sets a route's source if the kernel would choose another address than the link's `ip`. */
function withSource(route: RouteTarget, sources: ReadonlyMap<string, PreferredSource>): RouteTarget {
  const source = sources.get(route.link ?? "")?.source;
  return source === undefined || route.source !== undefined ? route : { ...route, source };
}

/** Reports another program's address that is the primary one. */
function secondaryNotice({ source, primary }: PreferredSource, path: string): readonly Issue[] {
  if (primary.isOurs) return [];
  const text = `${primary.address} of another program is the primary address of the subnet; routes of the section use ${source} as their source, routes of other programs do not`;
  return [
    networkIssue(path, "not-primary", `${text}; to make it primary, remove ${primary.address} where it is configured`),
  ];
}

type At = Pick<RouteTarget, "table" | "metric">;

/** Marks a gateway outside the link's subnets as on-link. */
export function routeVia(
  destination: string,
  via: string,
  member: Member,
  at: At,
  { state }: NetworkActual,
): RouteTarget {
  return routeThrough(destination, via, member.link, at, reaches(member, via, state));
}

/** Caches by gateway: most of thousands of routes share one. */
function onceEach(compute: (member: Member, via: string) => boolean): (member: Member, via: string) => boolean {
  const cached = new Map<Member, Map<string, boolean>>();
  return (member, via) => {
    const known = cached.get(member) ?? new Map<string, boolean>();
    cached.set(member, known);
    const is = known.get(via) ?? compute(member, via);
    known.set(via, is);
    return is;
  };
}

function reaches(member: Member, via: string, state: NetworkActual["state"]): boolean {
  return addressesOf(member, state).some((address) => isWithin(address, via));
}

function routeThrough(destination: string, via: string, link: string, at: At, isReached: boolean): RouteTarget {
  const isDefault = destination === ANYWHERE && at.table === MAIN_TABLE;
  // Among default routes with equal metric and scope the kernel uses the one whose gateway seems alive instead of the first.
  const scope = isDefault ? "site" : "global";
  return { ...at, kind: "unicast", destination, via, link, scope, isOnLink: !isReached };
}

/** Returns a route to destinations on the link. */
export function routeOnLink(destination: string, link: string, at: At): RouteTarget {
  return { ...at, kind: "unicast", destination, link, scope: "link", isOnLink: false };
}

/** Ends the lookup: packets without a route in the table are unreachable. */
export function endOf(table: number): RouteTarget {
  return {
    table,
    metric: LAST_METRIC,
    kind: "unreachable",
    destination: ANYWHERE,
    scope: "global",
    isOnLink: false,
  };
}

/** Returns an interface's connected routes, as the kernel would add them to the table main. */
function connectedRoutes({ link, addresses }: Member, table: number): readonly RouteTarget[] {
  return addresses.flatMap((address) => {
    const destination = parseCidr(address)?.text;
    const source = address.split("/", 1)[0];
    if (destination === undefined || source === undefined || destination.endsWith("/32")) return [];
    return [{ ...routeOnLink(destination, link, { table, metric: 0 }), source }];
  });
}

/** Returns the member that a route leaves by, or why there is none. */
function placeOf({ dev, via }: VrfRoute, { vrf, members }: Context, { state }: NetworkActual): Member | string {
  const context = vrf === undefined ? "the default context" : `the VRF ${vrf}`;
  if (dev !== undefined) {
    return members.find(({ link }) => link === dev) ?? `${dev} is no interface of ${context} that is in use`;
  }
  const found = members.find((member) => addressesOf(member, state).some((one) => isWithin(one, via ?? "")));
  return found ?? `no interface of ${context} reaches ${via ?? "it"}`;
}

/** Returns the members of VRFs with their tables. */
export function membersApart(
  contexts: readonly Context[],
): readonly { readonly member: Member; readonly table: number }[] {
  return contexts.flatMap(({ vrf, members, table }) =>
    vrf === undefined ? [] : members.filter((member) => vrfOf(member) === vrf).map((member) => ({ member, table })),
  );
}

type PrimaryAddress = Pick<AddressState, "address" | "isOurs">;

/** Source address for the routes of a link, since the kernel would choose another address of the subnet. */
interface PreferredSource {
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
function preferredSources(
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
