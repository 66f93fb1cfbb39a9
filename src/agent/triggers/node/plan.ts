import { PlanDocument, type PlanReport, type PlanRequest } from "../../../protocol/documents/reconcile.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";

/** What a configuration would do on this machine. */
export type PlanConfig = (config: PlanRequest["config"], signal: AbortSignal) => Promise<PlanReport>;

/** Shows the steps that a configuration would take, or the one in force, and takes none. */
export function plan(planConfig: PlanConfig): OneShotTrigger<PlanRequest> {
  return {
    event: "plan",
    kind: "one-shot",
    request: PlanDocument,
    deadlineMs: 60_000,
    needsDataPlane: false,
    readOnly: true,
    agents: true,
    handle: ({ config }, { signal }) => planConfig(config, signal),
  };
}
