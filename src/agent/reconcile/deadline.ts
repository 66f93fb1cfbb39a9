import { HostError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";

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
  const ended = new AbortController();
  const abort = (): void => ended.abort(signal.reason);
  signal.addEventListener("abort", abort, { once: true });
  const takeBack = clock.after(ms, () =>
    ended.abort(new HostError("timeout", `${what} took more than ${ms / 1000} s`)),
  );
  try {
    return await new Promise<T>((resolve, reject) => {
      ended.signal.addEventListener("abort", () => reject(toError(ended.signal.reason)), { once: true });
      Promise.resolve()
        .then(() => work(ended.signal))
        .then(resolve, reject);
    });
  } finally {
    takeBack();
    signal.removeEventListener("abort", abort);
  }
}
