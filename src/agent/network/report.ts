import { CONTAINER_PROTOCOL } from "../../host/exposure/routing.ts";
import {
  OUR_PROTOCOL,
  type AddressState,
  type LinkState,
  type NeighbourState,
  type NetworkState,
  type RouteState,
  type RuleState,
} from "../../host/network/state/state.ts";
import { NETWORK_REPORT_LIMITS } from "../../protocol/local/api.ts";
import type { NetworkReport } from "../../protocol/local/network.ts";

/** Observed state shown to operators. */
export interface ObservedNetwork extends Pick<NetworkState, "links" | "addresses" | "routes" | "rules"> {
  readonly neighbours: readonly NeighbourState[];
}

type Kind = keyof typeof NETWORK_REPORT_LIMITS;

/** Reports the observed network to operators: limited, with the number of skipped entries. Pure. */
export function networkReport({ links, addresses, routes, rules, neighbours }: ObservedNetwork): NetworkReport {
  const truncated: Record<string, number> = {};
  const bounded = <T>(kind: Kind, all: readonly T[]): T[] => {
    const limit = NETWORK_REPORT_LIMITS[kind];
    if (all.length > limit) truncated[kind] = all.length;
    return all.slice(0, limit);
  };
  return {
    schema: 1,
    links: bounded("links", links).map(linkView),
    addresses: bounded("addresses", addresses).map(addressView),
    routes: routeViews(bounded("routes", routes)),
    rules: bounded("rules", rules).map(ruleView),
    neighbours: bounded("neighbours", neighbours).map(neighbourView),
    truncated,
  };
}

type View<K extends Kind> = NetworkReport[K][number];

function linkView(state: LinkState): View<"links"> {
  const { name, kind, parent, vlanId, master, mac, mtu, isUp, hasCarrier, isOurs } = state;
  return { name, ...optional({ kind, parent, vlanId, master, mac }), mtu, isUp, hasCarrier, isOurs };
}

function addressView({ link, address, isOurs, isDynamic }: AddressState): View<"addresses"> {
  return { link, address, isOurs, isDynamic };
}

/** In the kernel's order: the first of a table and destination applies. */
function routeViews(routes: readonly RouteState[]): View<"routes">[] {
  const first = new Map<string, RouteState>();
  return routes.map((route) => {
    const key = `${route.table} ${route.destination}`;
    const taken = first.get(key);
    if (taken === undefined) first.set(key, route);
    return taken === undefined || isEqual(taken, route) ? routeView(route) : { ...routeView(route), isBehind: true };
  });
}

/** Reports whether the kernel may use either, as with default routes. */
function isEqual(one: RouteState, other: RouteState): boolean {
  return one.destination === "0.0.0.0/0" && one.metric === other.metric && one.scope === other.scope;
}

function routeView(state: RouteState): View<"routes"> {
  const { table, kind, destination, via, link, metric, protocol, source } = state;
  return { table, kind, destination, ...optional({ via, link, source }), metric, protocol, isOurs: isOurs(protocol) };
}

function isOurs(protocol: number): boolean {
  return protocol === OUR_PROTOCOL || protocol === CONTAINER_PROTOCOL;
}

function ruleView({
  priority,
  from,
  to,
  inLink,
  outLink,
  mark,
  mask,
  table,
  suppressLength,
  protocol,
}: RuleState): View<"rules"> {
  const known = optional({ from, to, inLink, outLink, mark, mask, suppressLength });
  return { priority, ...known, table, isOurs: isOurs(protocol) };
}

function neighbourView({ link, address, mac, states }: NeighbourState): View<"neighbours"> {
  return { link, address, ...optional({ mac }), states: states.slice(0, 8) };
}

type Known<Fields> = { readonly [Key in keyof Fields]?: Exclude<Fields[Key], undefined> };

/** Drops undefined fields. */
function optional<Fields extends Readonly<Record<string, unknown>>>(fields: Fields): Known<Fields> {
  // TypeScript does not infer that the filtered object lacks exactly the undefined fields.
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as Known<Fields>;
}
