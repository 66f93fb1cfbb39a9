import { OUR_PROTOCOL, type NeighbourState, type NetworkState } from "../host/network/state.ts";
import { NETWORK_REPORT_LIMITS, type NetworkReport } from "../protocol/local-network.ts";

/** What is looked at for people. */
export interface ObservedNetwork extends Pick<NetworkState, "links" | "addresses" | "routes" | "rules"> {
  readonly neighbours: readonly NeighbourState[];
}

type Kind = keyof typeof NETWORK_REPORT_LIMITS;

/** What is observed, for people: bounded, and with the number of what is left out; JSON leaves out what is undefined. Pure. */
export function networkReport({ links, addresses, routes, rules, neighbours }: ObservedNetwork): NetworkReport {
  const truncated: Record<string, number> = {};
  const bounded = <T>(kind: Kind, all: readonly T[]): T[] => {
    const limit = NETWORK_REPORT_LIMITS[kind];
    if (all.length > limit) truncated[kind] = all.length;
    return all.slice(0, limit);
  };
  return {
    schema: 1,
    links: bounded("links", links).map(
      ({ name, kind, parent, vlanId, master, mac, mtu, isUp, hasCarrier, isOurs }) => ({
        name,
        kind,
        parent,
        vlanId,
        master,
        mac,
        mtu,
        isUp,
        hasCarrier,
        isOurs,
      }),
    ),
    addresses: bounded("addresses", addresses).map(({ link, address, isOurs, isDynamic }) => ({
      link,
      address,
      isOurs,
      isDynamic,
    })),
    routes: bounded("routes", routes).map(({ table, kind, destination, via, link, metric, protocol, source }) => ({
      table,
      kind,
      destination,
      via,
      link,
      source,
      metric,
      protocol,
      isOurs: protocol === OUR_PROTOCOL,
    })),
    rules: bounded("rules", rules).map(({ priority, from, to, inLink, outLink, mark, mask, table, protocol }) => ({
      priority,
      from,
      to,
      inLink,
      outLink,
      mark,
      mask,
      table,
      isOurs: protocol === OUR_PROTOCOL,
    })),
    neighbours: bounded("neighbours", neighbours).map(({ link, address, mac, states }) => ({
      link,
      address,
      mac,
      states: states.slice(0, 8),
    })),
    truncated,
  };
}
