import type { NetworkState } from "../../../host/network/state/state.ts";
import type { NetworkFeatures } from "./actual.ts";
import { defaultRoute } from "./wan.ts";

/** Limit of listed interfaces and addresses; more are only counted. */
const MAX_LINKS = 16;

/** Reports the network: addresses, the default route, and states of interfaces. Pure. */
export function reportNetwork(state: NetworkState, features: NetworkFeatures): Readonly<Record<string, unknown>> {
  if (state.links.length === 0) return {};
  const links = state.links.filter(({ name }) => name !== "lo");
  const route = defaultRoute(state);
  const ours = (list: readonly { readonly protocol: number }[]): number =>
    list.filter(({ protocol }) => protocol === 218).length;
  return {
    ...(route === undefined ? {} : { default: `${route.via ?? "on-link"} ${route.link ?? ""}`.trim() }),
    nic: Object.fromEntries(
      links.slice(0, MAX_LINKS).map(({ name, isUp, hasCarrier }) => {
        const addresses = state.addresses.filter(({ link }) => link === name).map(({ address }) => address);
        const standing = !isUp ? "down" : hasCarrier ? "up" : "no carrier";
        return [name, [standing, ...addresses.slice(0, MAX_LINKS)].join(" ")];
      }),
    ),
    links: links.length,
    routes: ours(state.routes),
    rules: ours(state.rules),
    firewall: state.firewall === undefined ? "none" : "loaded",
    vrf: features.vrf ? "devices" : "tables",
    tunnels: "unsupported: this version of the node has no tunnels",
    bgp: "unsupported: this version of the node has no BGP",
  };
}
