import { NodeUpgrade } from "../../../protocol/triggers/bodies.ts";
import type { UpgradeAnswer, UpgradeOrder, UpgradeRequest } from "../../../protocol/documents/release.ts";
import { LOCAL_USER, type OneShotTrigger } from "../execution/trigger.ts";

export const UPGRADE_TRIGGER = "node-upgrade";

/** Requests an upgrade. */
export type AskUpgrade = (order: UpgradeOrder & Pick<UpgradeRequest, "by">) => Promise<UpgradeAnswer>;

/** Starts an upgrade of this node, and replies as soon as it is running. */
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
      // Only an operator at the machine may force it.
      ask({ ...request, isForced: false, by: user === LOCAL_USER ? "operator" : "control-plane" }),
  };
}
