import { HostError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";

/** How long a piece of work may take, in milliseconds, and what it is called when it takes longer. */
export interface Bounds {
  readonly clock: Clock;
  readonly ms: number;
  readonly what: string;
  readonly signal: AbortSignal;
}

/**
 * Does a piece of work within its time, even when it does not listen to its signal.
 * @throws {HostError} `timeout` when the time has passed; the signal's reason when it is aborted.
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
