import { RollbackRequest, type RollbackReport } from "../../../protocol/documents/reconcile.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";

/** Puts the document before into force, or plans it. */
export type RollBack = (request: RollbackRequest, signal: AbortSignal) => Promise<RollbackReport>;

/** Puts the document before the one in force to work until a newer version comes; answers before the steps are taken. */
export function rollback(rollBack: RollBack): OneShotTrigger<RollbackRequest> {
  return {
    event: "rollback",
    kind: "one-shot",
    request: RollbackRequest,
    deadlineMs: 60_000,
    needsDataPlane: false,
    readOnly: false,
    agents: true,
    handle: (request, { signal }) => rollBack(request, signal),
  };
}
