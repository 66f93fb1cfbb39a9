import { HostError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { untilAborted } from "../../lib/async/until-aborted.ts";

/** Time limit of an operation in milliseconds, and its name in the error. */
export interface Bounds {
  readonly clock: Clock;
  readonly ms: number;
  readonly what: string;
  readonly signal: AbortSignal;
}

/**
 * Runs an operation with a time limit, even if it ignores its signal.
 * @throws {HostError} `timeout` after the limit; the signal's reason if aborted.
 */
export async function withinDeadline<T>(
  { clock, ms, what, signal }: Bounds,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  signal.throwIfAborted();
  const late = new AbortController();
  const cancel = clock.after(ms, () => late.abort(new HostError("timeout", `${what} took more than ${ms / 1000} s`)));
  const limit = AbortSignal.any([signal, late.signal]);
  try {
    return await untilAborted(
      Promise.resolve().then(() => work(limit)),
      limit,
    );
  } finally {
    cancel();
  }
}
