import type { NetworkTarget } from "../../../host/network/state/state.ts";
import type { NetworkActual } from "./actual.ts";
import { membersApart } from "./compile-routes.ts";
import type { Context } from "./context.ts";

type RuleTarget = NetworkTarget["rules"][number];

/** Ours are 5180–5999. Rules of one priority look at the same thing, so that none is taken for another when it goes. */
const PRIORITY = { mark: 5200, inLink: 5500, outLink: 5501, from: 5502 };

/** A packet with this mark is looked up in that table. */
export interface MarkedTable {
  readonly mark: number;
  readonly mask: number;
  readonly table: number;
}

/**
 * Without VRF devices, what comes in on a member of a VRF, goes out on it by name, or has its address is looked up in the VRF's table,
 * and there alone.
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
