import { PlanDocument, type PlanReport, type PlanRequest } from "../../../protocol/documents/reconcile.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";

/** Plans a configuration on this machine. */
export type PlanConfig = (config: PlanRequest["config"], signal: AbortSignal) => Promise<PlanReport>;

/** Returns the steps of a given configuration, or of the applied one, and applies none. */
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
