import { RollbackRequest, type RollbackReport } from "../../../protocol/documents/reconcile.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";

/** Applies or plans the previous document. */
export type RollBack = (request: RollbackRequest, signal: AbortSignal) => Promise<RollbackReport>;

/** Applies the previous document until a newer version arrives; replies before the steps are applied. */
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
