import type { RestoreReason, Window } from "../../checkpoint/window.ts";

/** Targets reached before a change: the session and the gateways. */
export type Before = Window["before"];

/** An unreachable target and the reason. */
export interface Unreached {
  readonly target: string;
  readonly message: string;
  readonly isGateway?: boolean;
  /** True if the target is on this machine. */
  readonly isHere?: boolean;
}

/** Tests with new connections whether the node reaches its targets. */
export interface Prover {
  /** Returns the targets reached now. */
  before(): Before;
  /** Tries all targets once; returns the unreachable ones. If aborted, returns those not reached so far. */
  attempt(before: Before, signal: AbortSignal): Promise<readonly Unreached[]>;
  /** Tries the control plane once; undefined if it is reached. Rejects if aborted. */
  controlPlane(signal: AbortSignal): Promise<Unreached | undefined>;
  /** Returns the control plane's reported uptime in milliseconds; undefined if unreported or unreachable. */
  servingMs(signal: AbortSignal): Promise<number | undefined>;
}

/** Evidence on one line: `control plane 192.0.2.1:443: connection timed out; gateway …`. */
export function evidenceText(unreached: readonly Unreached[]): string {
  return unreached
    .map(({ target, message }) => `${target}: ${message}`)
    .join("; ")
    .slice(0, MAX_EVIDENCE);
}

export const MAX_EVIDENCE = 2000;

/** Describes why a window ended. Pure. */
export function endText(
  reason: RestoreReason,
  { seconds, mode }: Pick<Window, "seconds" | "mode">,
  unreached: readonly Unreached[],
): string {
  switch (reason) {
    case "not-proven": {
      const text = evidenceText(unreached);
      return text === "" ? `nothing was proven within ${seconds} s` : text;
    }
    case "not-kept":
      return `the trial of ${seconds / 60} min ended and nobody kept it`;
    case "reverted":
      return "somebody took it back";
    case "interrupted":
      return "the agent ended before the change was confirmed";
    case "rebooted":
      return `the machine was started anew ${mode === "try" ? "during the trial" : "before the change was confirmed"}`;
    case "step-failed":
    case "superseded":
      return reason;
  }
}
