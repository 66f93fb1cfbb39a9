import type { NetworkTarget } from "../../../host/network/state/state.ts";
import type { NetworkActual } from "./actual.ts";
import { membersApart } from "./compile-routes.ts";
import type { Context } from "./context.ts";

type RuleTarget = NetworkTarget["rules"][number];

/** Priorities 5180–5999 are ours. Rules of one priority match the same field, so that deleting one cannot hit another. */
const PRIORITY = { mark: 5200, inLink: 5500, outLink: 5501, from: 5502 };

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
