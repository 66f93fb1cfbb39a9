import type { NetworkTarget } from "../../../host/network/state/state.ts";
import type { NetworkActual } from "./actual.ts";
import { endOf, membersApart, routeVia } from "./compile-routes.ts";
import { addressesOf, MAIN_TABLE, type Context } from "./contexts.ts";
import type { NetworkInterface } from "../../../protocol/sections/network/config.ts";

type RuleTarget = NetworkTarget["rules"][number];

/** Priorities 5180–5999 are ours. Rules of one priority match the same field, so that deleting one cannot hit another. */
const PRIORITY = { mark: 5200, specific: 5300, next: 5301, inLink: 5500, outLink: 5501, from: 5502 };
/** First number of tables of path sources, by interface index; above those of policy rules. */
const FIRST_TABLE = 200_000;

/** Looks packets with this mark up in that table. */
export interface MarkedTable {
  readonly mark: number;
  readonly mask: number;
  readonly table: number;
}

/**
 * Emulates VRFs without VRF devices: packets that enter by a member, leave by its name, or have its address are looked up in the VRF's
 * table only.
 */
export function compileRules(
  contexts: readonly Context[],
  marked: readonly MarkedTable[],
  { features }: NetworkActual,
): readonly RuleTarget[] {
  const members = features.vrf ? [] : membersApart(contexts);
  return [
    ...marked.map(({ mark, mask, table }) => ({ priority: PRIORITY.mark, mark, mask, table })),
    ...members.map(({ member: { link }, table }) => ({ priority: PRIORITY.inLink, inLink: link, table })),
    ...members.map(({ member: { link }, table }) => ({ priority: PRIORITY.outLink, outLink: link, table })),
    ...members.flatMap(({ member: { addresses }, table }) =>
      [...new Set(addresses.map((address) => address.split("/", 1)[0] ?? ""))].map((address) => ({
        priority: PRIORITY.from,
        from: `${address}/32`,
        table,
      })),
    ),
  ];
}

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
