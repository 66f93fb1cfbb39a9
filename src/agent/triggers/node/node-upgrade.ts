import { NodeUpgrade } from "../../../protocol/triggers/bodies.ts";
import type { UpgradeAnswer, UpgradeOrder, UpgradeRequest } from "../../../protocol/documents/release.ts";
import { LOCAL_USER, type OneShotTrigger } from "../execution/trigger.ts";

export const UPGRADE_TRIGGER = "node-upgrade";

/** Asks for an upgrade. */
export type AskUpgrade = (order: UpgradeOrder & Pick<UpgradeRequest, "by">) => Promise<UpgradeAnswer>;

/** Begins an upgrade of this node or the staging of one, and answers as soon as that is under way. */
export function nodeUpgrade(ask: AskUpgrade): OneShotTrigger<NodeUpgrade> {
  return {
    event: UPGRADE_TRIGGER,
    kind: "one-shot",
    request: NodeUpgrade,
    deadlineMs: 60_000,
    needsDataPlane: false,
    readOnly: false,
    agents: false,
    exclusive: "node",
    handle: (request, { user }) =>
      // Nobody but an operator at the machine insists.
      ask({ ...request, isForced: false, by: user === LOCAL_USER ? "operator" : "control-plane" }),
  };
}
