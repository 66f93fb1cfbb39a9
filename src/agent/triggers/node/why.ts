import { z } from "zod";
import type { WhyReport } from "../../../protocol/documents/reconcile.ts";
import type { OneShotTrigger } from "../execution/trigger.ts";

export const Why = z.strictObject({});
export type Why = z.infer<typeof Why>;

/** Lists everything that is not as desired, with reasons. */
export function why(report: () => WhyReport): OneShotTrigger<Why> {
  return {
    event: "why",
    kind: "one-shot",
    request: Why,
    deadlineMs: 10_000,
    needsDataPlane: false,
    readOnly: true,
    agents: true,
    handle: () => Promise.resolve(report()),
  };
}
