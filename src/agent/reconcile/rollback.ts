import { HostError } from "../../errors.ts";
import type { TakenBack } from "../../checkpoint/commit-files.ts";
import { withTry } from "../../checkpoint/restore-pending.ts";
import type { RestoreReason, Window } from "../../checkpoint/window.ts";
import { endText, MAX_EVIDENCE, type Unreached } from "./prover.ts";
import type { Failure } from "./phase.ts";
import type { SectionResult, Work } from "./work.ts";

/** Details of a window's end. */
export interface WindowEnded {
  readonly reason: RestoreReason;
  /** The failed step, if any. */
  readonly failure: Failure | undefined;
  /** Targets that the last attempt did not reach. */
  readonly unreached: readonly Unreached[];
  /** Unix milliseconds. */
  readonly at: number;
}

/** Builds the record of a change that is about to be rolled back. Pure. */
export function rollbackOf(window: Window, { reason, failure, unreached, at }: WindowEnded): TakenBack {
  const { mode, isLocal, versions } = window;
  const evidence = failure?.error.message ?? endText(reason, window, unreached);
  const before = reason === "interrupted" || reason === "rebooted" ? window.unreached : undefined;
  const { kind, subject } = failure?.step ?? { kind: "", subject: "" };
  return {
    at,
    by: "agent",
    code: reason,
    evidence: withTry(evidence, before).slice(0, MAX_EVIDENCE),
    ...(before === undefined ? {} : { wasTried: true }),
    ...(reason === "not-proven" ? missedIn(unreached, window) : {}),
    ...(failure === undefined ? {} : { step: { kind: kind.slice(0, 64), subject: subject.slice(0, 512) } }),
    mode,
    isLocal,
    versions,
    failed: [],
  };
}

/** Returns the results that sections report after a rolled-back pass: the failed section's, or all if it was not confirmed. Pure. */
export function answersAfter(
  results: readonly SectionResult[],
  work: readonly Work[],
  evidence: string | undefined,
): readonly SectionResult[] {
  if (evidence === undefined) return results.filter(({ outcome }) => outcome.state === "failed");
  const error = new HostError("not-confirmed", `rolled back: ${evidence}`);
  const outcome = { state: "failed", error } as const;
  return work.map(({ section: { name } }) => {
    const { rejected, notices } = results.find((result) => result.name === name) ?? {};
    const judged = rejected === undefined || notices === undefined ? {} : { rejected, notices };
    return { name, outcome, ...judged, planned: [], steps: 0 };
  });
}

/** Returns what the missed targets say about other causes: the gateways, the control plane, or how long nothing was heard. */
function missedIn(
  unreached: readonly Unreached[],
  { before: { gateways }, seconds }: Window,
): Pick<TakenBack, "gateways" | "isHeard" | "silentMs"> {
  if (unreached.length === 0 || unreached.some(({ isHere }) => isHere === true)) return {};
  if (gateways.length === 0) return { silentMs: seconds * 1000 };
  if (unreached.every(({ isGateway }) => isGateway === true)) return { gateways: [...gateways] };
  return unreached.some(({ isGateway }) => isGateway === true) ? {} : { isHeard: true };
}
