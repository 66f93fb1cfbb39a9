import type { NetworkTarget } from "../../../host/network/state.ts";
import { parseCidr } from "../../../lib/cidr.ts";
import type { Issue } from "../../../protocol/reconcile.ts";
import type { NetworkInterface, VrfRoute } from "../../../protocol/sections/network-config.ts";
import { networkIssue, pathOf, type NetworkActual, type NetworkDesired } from "./actual.ts";
import { addressesOf, isWithin, MAIN_TABLE, vrfOf, type Context, type Member } from "./contexts.ts";

type RouteTarget = NetworkTarget["routes"][number];

/** Behind every other route of a table, so that a lookup ends there. */
const LAST_METRIC = 4_278_198_272;
const ANYWHERE = "0.0.0.0/0";

export interface CompiledRoutes {
  readonly routes: readonly RouteTarget[];
  readonly waits: readonly Issue[];
}

/** The routes of all contexts: of their interfaces, their own, and what keeps a VRF apart. */
export function compileRoutes(
  desired: NetworkDesired,
  actual: NetworkActual,
  contexts: readonly Context[],
  wan: NetworkInterface | undefined,
): CompiledRoutes {
  const waits: Issue[] = [];
  const routes = new Map<string, RouteTarget>();
  /** The first of a table, destination and metric stays. */
  const add = (route: RouteTarget): void => {
    const key = `${route.table} ${route.destination} ${route.metric}`;
    if (!routes.has(key)) routes.set(key, route);
  };
  const wait = (path: string, code: string, text: string): void => {
    waits.push(networkIssue(path, code, text));
  };
  for (const context of contexts) {
    const { vrf, table, members } = context;
    if (vrf !== undefined) add(endOf(table));
    for (const member of members) {
      const { link } = member;
      const isApart = vrf !== undefined && !actual.features.vrf;
      if (isApart) for (const route of connectedRoutes(member, table)) add(route);
      if (member.nic === wan && member.vlan === undefined && !wan.dhcp && wan.gateway !== undefined) {
        add(routeVia(ANYWHERE, wan.gateway, member, { table, metric: 0 }, actual));
      }
      const own = member.vlan?.routes ?? member.nic.routes;
      for (const [index, { route, next }] of own.entries()) {
        const via = next ?? member.gateway;
        if (via !== undefined) add(routeVia(route, via, member, { table, metric: 0 }, actual));
        else if (member.addresses.some((address) => isWithin(route, address.split("/", 1)[0] ?? ""))) {
          // A cloud may give an address without its subnet.
          add(routeOnLink(route, link, { table, metric: 0 }));
        } else {
          const path = `${pathOf(desired, link)}.routes.${index}.next`;
          wait(path, "no-next-hop", `${link} has no gateway that could stand in for it`);
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
      } else {
        const at = { table, metric: route.metric ?? 0 };
        const via = route.via ?? found.gateway;
        add(
          via === undefined
            ? routeOnLink(route.dest, found.link, at)
            : routeThrough(route.dest, via, found.link, at, isReached(found, via)),
        );
      }
    }
  }
  return { routes: [...routes.values()], waits };
}

type At = Pick<RouteTarget, "table" | "metric">;

/** A gateway that no address of the link reaches is taken to be on it all the same. */
export function routeVia(
  destination: string,
  via: string,
  member: Member,
  at: At,
  { state }: NetworkActual,
): RouteTarget {
  return routeThrough(destination, via, member.link, at, reaches(member, via, state));
}

/** Of thousands of routes most have the same gateway. */
function onceEach(tell: (member: Member, via: string) => boolean): (member: Member, via: string) => boolean {
  const told = new Map<Member, Map<string, boolean>>();
  return (member, via) => {
    const known = told.get(member) ?? new Map<string, boolean>();
    told.set(member, known);
    const is = known.get(via) ?? tell(member, via);
    known.set(via, is);
    return is;
  };
}

function reaches(member: Member, via: string, state: NetworkActual["state"]): boolean {
  return addressesOf(member, state).some((address) => isWithin(address, via));
}

function routeThrough(destination: string, via: string, link: string, at: At, isReached: boolean): RouteTarget {
  const isDefault = destination === ANYWHERE && at.table === MAIN_TABLE;
  // Of default routes with one metric and one scope the kernel takes that whose gateway seems alive, and not the first.
  const scope = isDefault ? "site" : "global";
  return { ...at, kind: "unicast", destination, via, link, scope, isOnLink: !isReached };
}

/** A route to what is on the link itself. */
export function routeOnLink(destination: string, link: string, at: At): RouteTarget {
  return { ...at, kind: "unicast", destination, link, scope: "link", isOnLink: false };
}

/** What is not found in the table is not looked for elsewhere. */
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

/** The routes to the subnets of an interface, as the kernel would make them in the table main. */
function connectedRoutes({ link, addresses }: Member, table: number): readonly RouteTarget[] {
  return addresses.flatMap((address) => {
    const destination = parseCidr(address)?.text;
    const source = address.split("/", 1)[0];
    if (destination === undefined || source === undefined || destination.endsWith("/32")) return [];
    return [{ ...routeOnLink(destination, link, { table, metric: 0 }), source }];
  });
}

/** The interface that a route goes through, or why there is none. */
function placeOf({ dev, via }: VrfRoute, { vrf, members }: Context, { state }: NetworkActual): Member | string {
  const context = vrf === undefined ? "the default context" : `the VRF ${vrf}`;
  if (dev !== undefined) {
    return members.find(({ link }) => link === dev) ?? `${dev} is no interface of ${context} that is in use`;
  }
  const found = members.find((member) => addressesOf(member, state).some((one) => isWithin(one, via ?? "")));
  return found ?? `no interface of ${context} reaches ${via ?? "it"}`;
}

/** Members of VRFs, with the table of each. */
export function membersApart(
  contexts: readonly Context[],
): readonly { readonly member: Member; readonly table: number }[] {
  return contexts.flatMap(({ vrf, members, table }) =>
    vrf === undefined ? [] : members.filter((member) => vrfOf(member) === vrf).map((member) => ({ member, table })),
  );
}
