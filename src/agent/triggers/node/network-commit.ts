import type { CommitReport } from "../../../protocol/local/commit.ts";
import { NetworkKeep, NetworkRevert } from "../../../protocol/triggers/bodies.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";

const ABOUT = { kind: "one-shot", deadlineMs: 150_000, needsDataPlane: false, readOnly: false, agents: false } as const;

/** Keeps the change of the network that is being proven or tried. */
export function networkKeep(keep: () => Promise<CommitReport>): OneShotTrigger<NetworkKeep> {
  return { ...ABOUT, event: "network-keep", request: NetworkKeep, handle: () => keep() };
}

/** Takes the change of the network back at once that is being proven or tried. */
export function networkRevert(revert: () => Promise<CommitReport>): OneShotTrigger<NetworkRevert> {
  return { ...ABOUT, event: "network-revert", request: NetworkRevert, handle: () => revert() };
}
