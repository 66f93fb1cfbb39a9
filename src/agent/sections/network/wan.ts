import type { NetworkState, RouteState } from "../../../host/network/state.ts";
import type { NetworkInterface } from "../../../protocol/sections/network-config.ts";
import type { Carrier } from "./actual.ts";
import { MAIN_TABLE } from "./contexts.ts";

/**
 * The interface that has the default route: the one with name servers, which only a WAN has; else the one that carries the session; else
 * the one with DHCP; else the first with a gateway. Only interfaces of the default context that have a gateway or DHCP are asked.
 */
export function wanOf(
  interfaces: readonly NetworkInterface[],
  state: NetworkState,
  carrier: Carrier | undefined,
): NetworkInterface | undefined {
  const able = interfaces.filter(({ vrf, dhcp, gateway }) => vrf === undefined && (dhcp || gateway !== undefined));
  const carrying = wanLinkOf(state, carrier);
  return (
    able.find(({ dns }) => dns.length > 0) ??
    able.find(({ nic }) => nic === carrying) ??
    able.find(({ dhcp }) => dhcp) ??
    able[0]
  );
}

/** The link that carries the session, or else would: that with its address, or with the default route. */
export function wanLinkOf(state: NetworkState, carrier: Carrier | undefined): string | undefined {
  const own = state.addresses.find(({ address }) => address.split("/", 1)[0] === carrier?.local);
  if (own !== undefined && own.link !== "lo") return own.link;
  return defaultRoute(state)?.link;
}

/** The default route that is taken: the first of those with the lowest metric. */
export function defaultRoute(state: NetworkState): RouteState | undefined {
  return state.routes
    .filter(({ table, destination, kind }) => table === MAIN_TABLE && destination === "0.0.0.0/0" && kind === "unicast")
    .reduce<RouteState | undefined>(
      (best, route) => (best === undefined || route.metric < best.metric ? route : best),
      undefined,
    );
}
