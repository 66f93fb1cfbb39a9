import { HostError, toError } from "../../errors.ts";
import type { Window } from "../../checkpoint/window.ts";
import type { Clock } from "../../host/clock.ts";
import type { Prover, Unreached } from "./prover.ts";
import type { Failure } from "./phase.ts";

/** State of the machine once all targets are reached. */
export type Verdict =
  | { readonly is: "as-applied" }
  | { readonly is: "not-yet"; readonly unreached: readonly Unreached[] }
  | { readonly is: "failed"; readonly failure: Failure };

/** Receives the function that cuts a wait short. */
type Expose = (ring: () => void) => void;

export interface TrialAttempt {
  readonly prover: Prover;
  readonly clock: Clock;
  readonly window: Window;
  readonly leftMs: number;
}

const ATTEMPT_MS = 5000;
/** Shorter, so that evidence exists early. */
const FIRST_ATTEMPT_MS = 3000;
const EVERY_MS = 1000;
const LATE = new DOMException("no answer in time", "TimeoutError");
const nothing = (): void => undefined;

/** Tries once to reach all targets; undefined if it was cut short. */
export async function attemptOnce(
  { prover, clock, window, leftMs }: TrialAttempt,
  expose: Expose,
  signal: AbortSignal,
): Promise<readonly Unreached[] | undefined> {
  signal.throwIfAborted();
  const trying = new AbortController();
  let isCut = false;
  const cut = (): void => {
    isCut = true;
    trying.abort(signal.reason);
  };
  const attemptMs = window.unreached === undefined ? FIRST_ATTEMPT_MS : ATTEMPT_MS;
  const takeBack = clock.after(Math.min(attemptMs, leftMs), () => trying.abort(LATE));
  signal.addEventListener("abort", cut, { once: true });
  expose(cut);
  const unreached = await prover.attempt(window.before, trying.signal).finally(() => {
    takeBack();
    signal.removeEventListener("abort", cut);
    expose(nothing);
  });
  return isCut ? undefined : unreached;
}

/** Observes the machine; a failure means not yet proven. Rejects if aborted, or if another process took the change. */
export async function verify(observe: () => Promise<Verdict>, signal: AbortSignal): Promise<Verdict> {
  try {
    return await observe();
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof HostError && error.code === "checkpoint-taken") throw error;
    return { is: "not-yet", unreached: [{ target: "this machine", message: toError(error).message, isHere: true }] };
  }
}

/** Waits one second, or until cut short or aborted. */
export async function pause(clock: Clock, expose: Expose, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise<void>((resolve) => {
    const done = (): void => {
      takeBack();
      signal.removeEventListener("abort", done);
      expose(nothing);
      resolve();
    };
    const takeBack = clock.after(EVERY_MS, done);
    signal.addEventListener("abort", done, { once: true });
    expose(done);
  });
}
