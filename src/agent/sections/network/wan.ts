import type { NetworkState, RouteState } from "../../../host/network/state.ts";
import type { NetworkInterface } from "../../../protocol/sections/network-config.ts";
import type { NetworkActual } from "./actual.ts";
import { MAIN_TABLE } from "./contexts.ts";

/**
 * The interface that has the default route: the one with name servers, which only a WAN has; else the one that carries the session; else
 * the one with DHCP; else the first with a gateway. Only interfaces of the default context that have a gateway or DHCP are asked.
 */
export function wanOf(interfaces: readonly NetworkInterface[], actual: Surroundings): NetworkInterface | undefined {
  const able = interfaces.filter(({ vrf, dhcp, gateway }) => vrf === undefined && (dhcp || gateway !== undefined));
  const carrying = wanLinkOf(actual);
  return (
    able.find(({ dns }) => dns.length > 0) ??
    able.find(({ nic }) => nic === carrying) ??
    able.find(({ dhcp }) => dhcp) ??
    able[0]
  );
}

type Surroundings = Pick<NetworkActual, "state" | "carrier" | "record">;

/**
 * The interface that carries the session, or else would: that with the session's address, that which was the WAN before, or that with
 * the default route; of a VLAN its parent.
 */
export function wanLinkOf({ state, carrier, record }: Surroundings): string | undefined {
  const own = state.addresses.find(({ address }) => address.split("/", 1)[0] === carrier?.local);
  const link =
    own !== undefined && own.link !== "lo" ? own.link : (formerWan(state, record) ?? defaultRoute(state)?.link);
  return state.links.find(({ name, isOurs }) => name === link && isOurs)?.parent ?? link;
}

function formerWan(state: NetworkState, { wan }: Surroundings["record"]): string | undefined {
  return state.links.find(({ name }) => name === wan)?.name;
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
