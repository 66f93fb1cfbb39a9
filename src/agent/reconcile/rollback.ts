import type { Rollback } from "../../checkpoint/commit-files.ts";
import { withTry } from "../../checkpoint/restore-pending.ts";
import type { RestoreReason, Window } from "../../checkpoint/window.ts";
import type { Unreached } from "./prover.ts";
import type { Failure } from "./work.ts";

const MAX_EVIDENCE = 2000;
const UNTRIED = "the machine slept or was too busy to prove anything before the confirm window ended";

/** Details of a window's end. */
export interface WindowEnded {
  readonly reason: RestoreReason;
  /** The failed step, if any. */
  readonly failure: Failure | undefined;
  /** Targets that the last attempt did not reach. */
  readonly unreached: readonly Unreached[];
  /** True if no attempt ended shortly before the end: the machine slept, or did something else. */
  readonly isUntried: boolean;
  /** Unix milliseconds. */
  readonly at: number;
}

/** Builds the record of a change that is about to be rolled back. Pure. */
export function rollbackOf(window: Window, { reason, failure, unreached, isUntried, at }: WindowEnded): Rollback {
  const { mode, isLocal, versions } = window;
  // Targets that were reached after the end were late, not missed.
  const isLate = reason === "not-proven" && (isUntried || unreached.length === 0);
  const evidence = failure?.error.message ?? (isLate ? UNTRIED : endText(reason, window, unreached));
  const before = reason === "interrupted" || reason === "rebooted" ? window.unreached : undefined;
  const { kind, subject } = failure?.step ?? { kind: "", subject: "" };
  return {
    at,
    by: "agent",
    code: reason,
    evidence: withTry(evidence, before).slice(0, MAX_EVIDENCE),
    ...(before === undefined ? {} : { wasTried: true }),
    ...(isLate ? { isLate } : reason === "not-proven" ? missedIn(unreached, window) : {}),
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
  if (unreached.some(({ isHere }) => isHere === true)) return {};
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
function endText(
  reason: RestoreReason,
  { seconds, mode }: Pick<Window, "seconds" | "mode">,
  unreached: readonly Unreached[],
): string {
  switch (reason) {
    case "not-proven":
      return evidenceText(unreached);
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
