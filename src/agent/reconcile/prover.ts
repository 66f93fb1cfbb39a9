import type { Window } from "../../checkpoint/window.ts";

/** Targets reached before a change: the session and the gateways. */
export type Baseline = Window["before"];

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
  baseline(): Baseline;
  /** Tries all targets once; returns the unreachable ones. If aborted, returns those not reached so far. */
  attempt(baseline: Baseline, signal: AbortSignal): Promise<readonly Unreached[]>;
  /** Tries the control plane once; undefined if it is reached. Rejects if aborted. */
  controlPlane(signal: AbortSignal): Promise<Unreached | undefined>;
  /** Returns the control plane's reported uptime in milliseconds; undefined if unreported or unreachable. */
  servingMs(signal: AbortSignal): Promise<number | undefined>;
}
