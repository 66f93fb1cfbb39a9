import type { CommitReport } from "../../../protocol/local/commit.ts";
import { NetworkKeep, NetworkRevert } from "../../../protocol/triggers/bodies.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";

const ABOUT = { kind: "one-shot", deadlineMs: 150_000, needsDataPlane: false, readOnly: false, agents: false } as const;

/** Confirms the pending network change. */
export function networkKeep(keep: () => Promise<CommitReport>): OneShotTrigger<NetworkKeep> {
  return { ...ABOUT, event: "network-keep", request: NetworkKeep, handle: () => keep() };
}

/** Reverts the pending network change at once. */
export function networkRevert(revert: () => Promise<CommitReport>): OneShotTrigger<NetworkRevert> {
  return { ...ABOUT, event: "network-revert", request: NetworkRevert, handle: () => revert() };
}
