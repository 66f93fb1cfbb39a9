const CRASH = { firstMs: 100, capMs: 60_000, resetMs: 10_000 };
const FAILURE = { firstMs: 5000, capMs: 600_000 };

/** Milliseconds until a process is started again that has ended by itself for the n-th time in a row, as the Docker Engine has it. */
export function crashDelay(crashes: number): number {
  return doubled(CRASH, crashes);
}

/** Milliseconds until a start is tried again that failed before the process ran, for the n-th time in a row. */
export function failureDelay(failures: number): number {
  return doubled(FAILURE, failures);
}

/** How many ends in a row this one makes, when the process ran for `ranMs` before it. */
export function crashesAfter(crashes: number, ranMs: number): number {
  return ranMs >= CRASH.resetMs ? 1 : crashes + 1;
}

function doubled({ firstMs, capMs }: { readonly firstMs: number; readonly capMs: number }, times: number): number {
  return Math.min(capMs, firstMs * 2 ** Math.min(Math.max(times - 1, 0), 20));
}
