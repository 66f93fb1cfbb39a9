/** Returns a signal that aborts with the given one, or with a `TimeoutError` after `ms`. */
export function withinTime(signal: AbortSignal, ms: number): AbortSignal {
  return AbortSignal.any([signal, AbortSignal.timeout(ms)]);
}

/** Time limit for the answer to a request; keeping the connection alive does not extend it. */
export const ANSWER_MS = 30_000;
