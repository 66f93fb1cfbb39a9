/**
 * A probe takes processor time from what it waits for, so there is a pause after each: eight times its own duration, and at least a
 * twelfth of the time waited so far, within these limits.
 */
const MAX_REST_MS = 1000;
const MIN_REST_MS = 20;
/** Limit of the pauses that grow with the time waited: states that last longer are seen. */
const MAX_GROWN_REST_MS = 500;
/** Only what never happens takes so long; a busy machine may take minutes for what usually takes a second. */
const LIMIT_MS = 120_000;

/** Waits until `probe` returns something other than undefined or false; fails with its description after the limit. */
export async function waitFor<T>(
  what: string,
  probe: () => T | Promise<T>,
  limitMs = LIMIT_MS,
): Promise<Exclude<T, undefined | false>> {
  const start = performance.now();
  const end = start + limitMs;
  let last: unknown;
  while (performance.now() < end) {
    const begun = performance.now();
    try {
      const value = await probe();
      if (value !== undefined && value !== false) return value as Exclude<T, undefined | false>;
    } catch (error) {
      last = error;
    }
    const grown = Math.min((begun - start) / 12, MAX_GROWN_REST_MS);
    const rest = Math.min(Math.max(MIN_REST_MS, grown, 8 * (performance.now() - begun)), MAX_REST_MS);
    await new Promise((resolve) => setTimeout(resolve, rest));
  }
  throw new Error(`waited ${limitMs} ms in vain for: ${what}`, { cause: last });
}
