import type { NetworkTarget } from "../../../host/network/state/state.ts";
import type { NetworkInterface } from "../../../protocol/sections/network/config.ts";
import type { NetworkActual } from "./actual.ts";
import { endOf, routeVia } from "./compile-routes.ts";
import type { Context } from "./context.ts";
import { addressesOf, MAIN_TABLE } from "./contexts.ts";

/** Priorities in the range of `compile-rules.ts`, before the rules of VRFs. */
const PRIORITY = { specific: 5300, next: 5301 };
/** First number of tables by interface index, above those of policy rules. */
const FIRST_TABLE = 200_000;

/**
 * Routes packets from the `local` address of a path through the interface that has this address and its own gateway, instead of the WAN.
 * More specific routes of the table main than the default route take precedence; if the interface is down nothing is sent. Pure.
 */
export function compilePathSources(
  contexts: readonly Context[],
  actual: NetworkActual,
  wan: NetworkInterface | undefined,
): Pick<NetworkTarget, "routes" | "rules"> {
  const wanted = new Set(actual.pathSources);
  const members = contexts.flatMap(({ vrf, members }) => (vrf === undefined ? members : []));
  const found = members.flatMap((member) => {
    const { link, gateway, nic, vlan } = member;
    if (gateway === undefined || (nic === wan && vlan === undefined)) return [];
    const own = addressesOf(member, actual.state).map((address) => address.split("/", 1)[0] ?? "");
    const sources = [...new Set(own)].filter((address) => wanted.has(address));
    const table = FIRST_TABLE + (actual.state.links.find(({ name }) => name === link)?.index ?? 0);
    return sources.length === 0 ? [] : [{ member, gateway, sources, table }];
  });
  return {
    routes: found.flatMap(({ member, gateway, table }) => [
      routeVia("0.0.0.0/0", gateway, member, { table, metric: 0 }, actual),
      endOf(table),
    ]),
    rules: found.flatMap(({ sources, table }) =>
      sources.flatMap((source) => [
        { priority: PRIORITY.specific, from: `${source}/32`, table: MAIN_TABLE, suppressLength: 0 },
        { priority: PRIORITY.next, from: `${source}/32`, table },
      ]),
    ),
  };
}
