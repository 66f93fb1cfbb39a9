import { HostError } from "../../errors.ts";
import type { TakenBack } from "../../checkpoint/commit-files.ts";
import { withTry } from "../../checkpoint/restore-pending.ts";
import type { RestoreReason, Window } from "../../checkpoint/window.ts";
import { endText, MAX_EVIDENCE, type Unreached } from "./prover.ts";
import type { Failure } from "./turn.ts";
import type { SectionResult, Work } from "./work.ts";

/** How a window came to its end. */
export interface WindowEnded {
  readonly reason: RestoreReason;
  /** The step that failed, if one did. */
  readonly failure: Failure | undefined;
  /** Who was not reached at the last try. */
  readonly unreached: readonly Unreached[];
  /** Unix milliseconds. */
  readonly at: number;
}

/** What is noted of a change that is about to be taken back. Pure. */
export function takenBackBy(window: Window, { reason, failure, unreached, at }: WindowEnded): TakenBack {
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

/** What sections have to answer for after a pass was taken back: the one whose step failed, or all when it was not confirmed. Pure. */
export function answersAfter(
  results: readonly SectionResult[],
  work: readonly Work[],
  evidence: string | undefined,
): readonly SectionResult[] {
  if (evidence === undefined) return results.filter(({ outcome }) => outcome.state === "failed");
  const error = new HostError("not-confirmed", `taken back: ${evidence}`);
  const outcome = { state: "failed", error } as const;
  return work.map(({ section: { name } }) => {
    const { rejected, notices } = results.find((result) => result.name === name) ?? {};
    const judged = rejected === undefined || notices === undefined ? {} : { rejected, notices };
    return { name, outcome, ...judged, planned: [], steps: 0 };
  });
}

/** What those who were not reached say of who else may be to blame: the gateways themselves, or the control plane; or for how long nobody said anything. */
function missedIn(
  unreached: readonly Unreached[],
  { before: { gateways }, seconds }: Window,
): Pick<TakenBack, "gateways" | "isHeard" | "silentMs"> {
  if (unreached.length === 0 || unreached.some(({ isHere }) => isHere === true)) return {};
  if (gateways.length === 0) return { silentMs: seconds * 1000 };
  if (unreached.every(({ isGateway }) => isGateway === true)) return { gateways: [...gateways] };
  return unreached.some(({ isGateway }) => isGateway === true) ? {} : { isHeard: true };
}
