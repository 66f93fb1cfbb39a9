import type { LinkPlan } from "./diff-links.ts";
import { deleteRouteLine, lastRouteLine, routeLine } from "./ip/lines.ts";
import { OUR_PROTOCOL, type NetworkState, type NetworkTarget, type RouteState } from "./state/state.ts";

type RouteTarget = NetworkTarget["routes"][number];

export interface RoutePlan {
  readonly added: readonly string[];
  readonly removed: readonly string[];
  /** Desired routes that the kernel drops with the last address of their link, to add again. */
  readonly again: readonly string[];
}

/**
 * Plans the routes. A new route precedes one with the same key, so it applies before the old one is removed. Routes that others
 * depend on come first, because a gateway must be reachable when it is named.
 */
export function diffRoutes(
  state: NetworkState,
  target: NetworkTarget,
  links: LinkPlan & { readonly emptied: ReadonlySet<string> },
): RoutePlan {
  const isLost = ({ link }: RouteTarget): boolean =>
    link !== undefined && (links.renewed.has(link) || links.gone.has(link) || links.flushed.has(link));
  const there = state.routes.filter((route) => !isLost(route));
  // Compared by keys, because comparing thousands of routes is slow.
  const ours = new Map(
    there.flatMap((route) => (route.protocol === OUR_PROTOCOL ? [[route, routeKey(route)] as const] : [])),
  );
  const keys = new Set(ours.values());
  let first: ReadonlyMap<string, RouteState> | undefined;
  const firstOf = (route: RouteTarget): RouteState | undefined => (first ??= firstOfKey(there)).get(slotOf(route));
  const wanted = new Map(
    target.routes.filter((route) => isPossible(route, links)).map((route) => [routeKey(route), route]),
  );
  const waiting = waitingForLease(state, target);
  const isHeld = ({ link, table }: RouteTarget): boolean => table === 254 && link !== undefined && waiting.has(link);
  const isDropped = ({ link }: RouteTarget): boolean => link !== undefined && links.emptied.has(link);
  const contested = contestedSlots(there);
  const isThere = (key: string, route: RouteTarget): boolean =>
    keys.has(key) || (!contested.has(slotOf(route)) && isMet(route, firstOf(route)));
  const missing = [...wanted].flatMap(([key, route]) => (isThere(key, route) ? [] : [route]));
  const overtaken = behindStrangers(there, ours);
  // A route of ours behind another program's does not apply, so it can be removed and added again.
  const renewed =
    overtaken.size === 0
      ? []
      : [...wanted].flatMap(([key, route]) =>
          overtaken.has(key) && !isDropped(route) ? [deleteRouteLine(route), routeLine(route)] : [],
        );
  const going = new Set([...ours].flatMap(([route, key]) => (!wanted.has(key) && !isHeld(route) ? [route] : [])));
  const succession = successionOf(
    missing.filter((route) => !isDropped(route)),
    going,
    there,
  );
  const again = links.emptied.size === 0 ? [] : [...wanted.values()].filter(isDropped);
  return {
    added: [
      ...inOrder(missing.filter((route) => !isDropped(route))).flatMap(
        (route) => succession.lines.get(route) ?? [routeLine(route)],
      ),
      ...renewed,
    ],
    removed: [...going].flatMap((route) => (succession.replaced.has(route) ? [] : [deleteRouteLine(route)])),
    again: inOrder(again).map(routeLine),
  };
}

/** Returns the links that wait for a lease; their earlier routes stay until then. */
export function waitingForLease(state: NetworkState, target: NetworkTarget): ReadonlySet<string> {
  if (target.isExact === true) return new Set();
  const leased = new Set(state.addresses.filter(({ isDynamic }) => isDynamic).map(({ link }) => link));
  return new Set([...target.dhcp].filter((link) => !leased.has(link)));
}

function isPossible({ kind, link }: RouteTarget, links: LinkPlan): boolean {
  return kind !== "unicast" || (link !== undefined && links.isUp(link));
}

function inOrder(routes: readonly RouteTarget[]): readonly RouteTarget[] {
  return routes.toSorted((a, b) => Number(a.via !== undefined) - Number(b.via !== undefined));
}

/** Returns the effective route for each table, destination and metric. */
function firstOfKey(routes: readonly RouteState[]): ReadonlyMap<string, RouteState> {
  const first = new Map<string, RouteState>();
  for (const route of routes) {
    const slot = slotOf(route);
    if (!first.has(slot)) first.set(slot, route);
  }
  return first;
}

/** Returns the keys of our routes that are behind another program's route in the same place. */
function behindStrangers(routes: readonly RouteState[], ours: ReadonlyMap<RouteState, string>): ReadonlySet<string> {
  const taken = new Set<string>();
  const destinations = new Set<string>();
  const behind = new Set<string>();
  for (const route of routes) {
    const key = ours.get(route);
    if (key === undefined) {
      taken.add(slotOf(route));
      destinations.add(route.destination);
    } else if (destinations.has(route.destination) && taken.has(slotOf(route))) behind.add(key);
  }
  return behind;
}

/** Returns the places where other programs have several default routes, among which the kernel alternates. */
function contestedSlots(routes: readonly RouteState[]): ReadonlySet<string> {
  const strangers = routes.filter(
    ({ destination, protocol }) => destination === "0.0.0.0/0" && protocol !== OUR_PROTOCOL,
  );
  return new Set(
    strangers
      .filter((route, at) => strangers.some((other, before) => before < at && slotOf(other) === slotOf(route)))
      .map(slotOf),
  );
}

/** Reports whether another program's route serves: it leads to the same place, from the requested source. */
function isMet(route: RouteTarget, found: RouteState | undefined): boolean {
  if (found === undefined || found.protocol === OUR_PROTOCOL || found.kind !== route.kind) return false;
  if (route.source !== undefined && route.source !== found.source) return false;
  return route.kind !== "unicast" || (found.via === route.via && found.link === route.link);
}

/** Replacements of routes that differ from the new one only by naming no source. */
interface Succession {
  readonly lines: ReadonlyMap<RouteTarget, readonly string[]>;
  readonly replaced: ReadonlySet<RouteState>;
}

/**
 * Appends the new route behind the old one: the kernel deletes the first match, and the old route matches both. If another
 * program's route is in the same place, the new one would be behind that too, so the old one is deleted first.
 */
function successionOf(
  missing: readonly RouteTarget[],
  going: ReadonlySet<RouteState>,
  there: readonly RouteState[],
): Succession {
  const lines = new Map<RouteTarget, readonly string[]>();
  const replaced = new Set<RouteState>();
  const plain = new Map([...going].flatMap((one) => (one.source === undefined ? [[slotOf(one), one] as const] : [])));
  for (const route of missing) {
    const before = route.source === undefined ? undefined : plain.get(slotOf(route));
    if (before === undefined || !isSameButSource(before, route)) continue;
    const slot = slotOf(before);
    const isContested = there.some((one) => one.protocol !== OUR_PROTOCOL && slotOf(one) === slot);
    if (isContested) replaced.add(before);
    lines.set(route, isContested ? [deleteRouteLine(before), routeLine(route)] : [lastRouteLine(route)]);
  }
  return { lines, replaced };
}

function isSameButSource({ kind, via, link, scope }: RouteState, other: RouteTarget): boolean {
  return kind === other.kind && via === other.via && link === other.link && scope === other.scope;
}

const slotOf = ({ table, destination, metric }: RouteTarget): string => `${table} ${destination} ${metric}`;

function routeKey(route: RouteTarget): string {
  const { kind, via, link, scope, source } = route;
  // The onlink flag does not distinguish routes: the kernel deletes either of two.
  return kind === "unicast" ? `${slotOf(route)} ${kind} ${via} ${link} ${scope} ${source}` : `${slotOf(route)} ${kind}`;
}
