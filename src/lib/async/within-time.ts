/** A signal that is aborted with the given one, or with a `TimeoutError` when `ms` have passed. */
export function withinTime(signal: AbortSignal, ms: number): AbortSignal {
  return AbortSignal.any([signal, AbortSignal.timeout(ms)]);
}

/** How long the other side may take to answer a request; one that only keeps the connection alive is not waited for. */
export const ANSWER_MS = 30_000;
