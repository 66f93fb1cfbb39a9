import type { Rollback } from "../../checkpoint/commit-files.ts";
import { withTry } from "../../checkpoint/restore-pending.ts";
import type { RestoreReason, Window } from "../../checkpoint/window.ts";
import type { Unreached } from "./prover.ts";
import type { Failure } from "./work.ts";

const MAX_EVIDENCE = 2000;

/** Details of a window's end. */
export interface WindowEnded {
  readonly reason: RestoreReason;
  /** The failed step, if any. */
  readonly failure: Failure | undefined;
  /** Targets that the last attempt did not reach. */
  readonly unreached: readonly Unreached[];
  /** When the last attempt began, compared with the end. */
  readonly tried: "never" | "long-ago" | "lately";
  /** Unix milliseconds. */
  readonly at: number;
}

/** Builds the record of a change that is about to be rolled back. Pure. */
export function rollbackOf(window: Window, ended: WindowEnded): Rollback {
  const { mode, isLocal, versions } = window;
  const { reason, failure, unreached, tried, at } = ended;
  // Targets that were reached after the end were late, not missed. A trial without an operator is not repeated.
  const isLate = reason === "not-proven" && mode === "save" && (tried !== "lately" || unreached.length === 0);
  const evidence = failure?.error.message ?? endText(window, ended);
  const before = reason === "interrupted" || reason === "rebooted" ? window.unreached : undefined;
  const { kind, subject } = failure?.step ?? { kind: "", subject: "" };
  return {
    at,
    by: "agent",
    code: reason,
    evidence: withTry(evidence, before).slice(0, MAX_EVIDENCE),
    ...(before === undefined ? {} : { wasTried: true }),
    ...(isLate ? { isLate, gateways: [...window.before.gateways] } : {}),
    ...(reason === "not-proven" && !isLate ? missedIn(unreached, window) : {}),
    ...(failure === undefined ? {} : { step: { kind: kind.slice(0, 64), subject: subject.slice(0, 512) } }),
    mode,
    isLocal,
    versions,
    failed: [],
  };
}

/** Returns what the missed targets say about other causes: the gateways, the control plane, or how long nothing was heard. */
function missedIn(
  unreached: readonly Unreached[],
  { before: { gateways }, seconds }: Window,
): Pick<Rollback, "gateways" | "isHeard" | "silentMs"> {
  if (unreached.length === 0 || unreached.some(({ isHere }) => isHere === true)) return {};
  if (gateways.length === 0) return { silentMs: seconds * 1000 };
  if (unreached.every(({ isGateway }) => isGateway === true)) return { gateways: [...gateways] };
  return unreached.some(({ isGateway }) => isGateway === true) ? {} : { isHeard: true };
}

/** Evidence on one line: `control plane 192.0.2.1:443: connection timed out; gateway …`. */
export function evidenceText(unreached: readonly Unreached[]): string {
  return unreached
    .map(({ target, message }) => `${target}: ${message}`)
    .join("; ")
    .slice(0, MAX_EVIDENCE);
}

/** Describes why a window ended. Pure. */
function endText({ seconds, mode }: Window, { reason, unreached, tried }: WindowEnded): string {
  switch (reason) {
    case "not-proven":
      if (tried === "never")
        return `nothing was tried within ${seconds} s: its steps took too long, or the machine slept`;
      if (tried === "lately" && unreached.length > 0) return evidenceText(unreached);
      return `the machine slept or was too busy to prove anything within ${seconds} s`;
    case "not-kept":
      return `the trial of ${seconds / 60} min ended without a confirmation`;
    case "reverted":
      return "it was reverted on request";
    case "interrupted":
      return "the agent ended before the change was confirmed";
    case "rebooted":
      return `the machine restarted ${mode === "try" ? "during the trial" : "before the change was confirmed"}`;
    case "step-failed":
    case "superseded":
      return reason;
  }
}
