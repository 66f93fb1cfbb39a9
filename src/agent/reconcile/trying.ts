import { HostError, toError } from "../../errors.ts";
import type { Window } from "../../checkpoint/window.ts";
import type { Clock } from "../../host/clock.ts";
import type { Prover, Unreached } from "./prover.ts";
import type { Failure } from "./turn.ts";

/** What the machine is like when everybody is reached over it. */
export type Verdict =
  | { readonly is: "as-applied" }
  | { readonly is: "not-yet"; readonly unreached: readonly Unreached[] }
  | { readonly is: "failed"; readonly failure: Failure };

/** Takes what cuts a wait short; it does nothing once the wait is over. */
type Expose = (ring: () => void) => void;

export interface Trying {
  readonly prover: Prover;
  readonly clock: Clock;
  readonly window: Window;
  readonly leftMs: number;
}

const ATTEMPT_MS = 5000;
/** So that there is something to judge it by soon. */
const FIRST_ATTEMPT_MS = 3000;
const EVERY_MS = 1000;
const LATE = new DOMException("no answer in time", "TimeoutError");
const nothing = (): void => undefined;

/** Tries once to reach everybody who must be; undefined when it was cut short by somebody who has something to say. */
export async function tryOnce(
  { prover, clock, window, leftMs }: Trying,
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

/** Looks at the machine; when that fails nothing is proven yet. Rejects when aborted, or when the change was taken over. */
export async function judged(look: () => Promise<Verdict>, signal: AbortSignal): Promise<Verdict> {
  try {
    return await look();
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof HostError && error.code === "checkpoint-taken") throw error;
    return { is: "not-yet", unreached: [{ target: "this machine", message: toError(error).message, isHere: true }] };
  }
}

/** Waits a second, or until it is cut short or aborted. */
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
