import type { NetworkState, RouteState } from "../../../host/network/state/state.ts";
import type { NetworkInterface } from "../../../protocol/sections/network/config.ts";
import type { Issue } from "../../../protocol/documents/reconcile.ts";
import { networkIssue, pathOf, type NetworkActual, type NetworkDesired } from "./actual.ts";
import { MAIN_TABLE } from "./contexts.ts";

/**
 * Returns the interface of the default route. The known WAN stays while its entry has a gateway or DHCP. Another interface replaces it only
 * if the document identifies it: the only one with name servers, which only a WAN has; or, if the known one lost its gateway, the only one
 * with a gateway or DHCP. Without a known WAN the first one with name servers, with DHCP, or with a gateway is used. Only interfaces of the
 * default context count.
 */
export function wanOf(interfaces: readonly NetworkInterface[], actual: Surroundings): NetworkInterface | undefined {
  const able = interfaces.filter(({ vrf, dhcp, gateway }) => vrf === undefined && (dhcp || gateway !== undefined));
  const named = able.filter(({ dns }) => dns.length > 0);
  const known = wanLinkOf(actual);
  if (known === undefined) return named[0] ?? able.find(({ dhcp }) => dhcp) ?? able[0];
  const isListed = interfaces.some(({ nic }) => nic === known);
  return able.find(({ nic }) => nic === known) ?? onlyOf(named) ?? (isListed ? onlyOf(able) : undefined);
}

const onlyOf = <T>(list: readonly T[]): T | undefined => (list.length === 1 ? list[0] : undefined);

/** Lists interfaces whose name servers are ignored, since another one is the WAN. */
export function wanConflicts(desired: NetworkDesired, actual: Surroundings): readonly Issue[] {
  const { interfaces } = desired.config;
  const wan = wanOf(interfaces, actual)?.nic ?? wanLinkOf(actual);
  return interfaces.flatMap(({ nic, dns }) => {
    if (dns.length === 0 || nic === wan) return [];
    const path = `${pathOf(desired, nic)}.dns`;
    const move = `to move the WAN, give ${nic} a gateway and remove it from ${wan ?? "the others"}`;
    return [
      networkIssue(path, "not-the-wan", `not used: only the WAN has name servers, and ${wan ?? "none"} is it; ${move}`),
    ];
  });
}

type Surroundings = Pick<NetworkActual, "state" | "carrier" | "record">;

/**
 * Returns the WAN without the document: the recorded one, else the one that carries the session, else the one with the default route; the
 * parent if it is a VLAN.
 */
export function wanLinkOf({ state, carrier, record }: Surroundings): string | undefined {
  const own = state.addresses.find(({ address }) => address.split("/", 1)[0] === carrier?.local);
  const carrying = own !== undefined && own.link !== "lo" ? own.link : undefined;
  const link = formerWan(state, record) ?? carrying ?? defaultRoute(state)?.link;
  return state.links.find(({ name, isOurs }) => name === link && isOurs)?.parent ?? link;
}

function formerWan(state: NetworkState, { wan }: Surroundings["record"]): string | undefined {
  return state.links.find(({ name }) => name === wan)?.name;
}

/** Returns the applicable default route: the first with the lowest metric. */
export function defaultRoute(state: NetworkState): RouteState | undefined {
  return state.routes
    .filter(({ table, destination, kind }) => table === MAIN_TABLE && destination === "0.0.0.0/0" && kind === "unicast")
    .reduce<RouteState | undefined>(
      (best, route) => (best === undefined || route.metric < best.metric ? route : best),
      undefined,
    );
}
