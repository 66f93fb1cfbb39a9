import type { RestoreReason, Window } from "../../checkpoint/window.ts";

/** What was reached before a change: whether there was a session, and through which gateways. */
export type Before = Window["before"];

/** A target that is not reached, and why. */
export interface Unreached {
  readonly target: string;
  readonly message: string;
  readonly isGateway?: boolean;
  /** Nobody far away is meant, but something on this machine. */
  readonly isHere?: boolean;
}

/** Finds out over connections of its own whether the node reaches whom it must. */
export interface Prover {
  /** What is reached at this moment. */
  before(): Before;
  /** Tries everybody once who has to be reached; empty when that was so. Aborted, it soon says who was not. */
  attempt(before: Before, signal: AbortSignal): Promise<readonly Unreached[]>;
  /** Tries the control plane alone, once; undefined when it is reached. Rejects when aborted. */
  controlPlane(signal: AbortSignal): Promise<Unreached | undefined>;
  /** For how many milliseconds the control plane has been serving, as it says; undefined when it does not, or is not reached. */
  servingMs(signal: AbortSignal): Promise<number | undefined>;
}

/** Proves everything without asking anybody. */
export const provenAtOnce: Prover = {
  before: () => ({ session: true, gateways: [] }),
  attempt: () => Promise.resolve([]),
  controlPlane: () => Promise.resolve(undefined),
  servingMs: () => Promise.resolve(undefined),
};

/** Evidence on one line: `control plane 192.0.2.1:443: connection timed out; gateway …`. */
export function evidenceText(unreached: readonly Unreached[]): string {
  return unreached
    .map(({ target, message }) => `${target}: ${message}`)
    .join("; ")
    .slice(0, MAX_EVIDENCE);
}

export const MAX_EVIDENCE = 2000;

/** Why a window ended, for people. Pure. */
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
