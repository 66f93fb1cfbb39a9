const CRASH = { firstMs: 100, capMs: 60_000, resetMs: 10_000 };
const FAILURE = { firstMs: 5000, capMs: 600_000 };

/** Returns the delay before the restart after the n-th consecutive exit, in milliseconds, as the Docker Engine does. */
export function crashDelay(crashes: number): number {
  return doubled(CRASH, crashes);
}

/** Returns the delay before the retry after the n-th consecutive failed start, in milliseconds. */
export function failureDelay(failures: number): number {
  return doubled(FAILURE, failures);
}

/** Returns the count of consecutive exits after a run of `ranMs`. */
export function crashesAfter(crashes: number, ranMs: number): number {
  return ranMs >= CRASH.resetMs ? 1 : crashes + 1;
}

function doubled({ firstMs, capMs }: { readonly firstMs: number; readonly capMs: number }, times: number): number {
  return Math.min(capMs, firstMs * 2 ** Math.min(Math.max(times - 1, 0), 20));
}
