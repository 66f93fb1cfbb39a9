/** A probe that runs programs takes time from what it waits for: each pauses four times its own duration, at most this long. */
const MAX_REST_MS = 1000;
const MIN_REST_MS = 20;
/** Only what never happens takes so long; a busy machine may take minutes for what usually takes a second. */
const LIMIT_MS = 120_000;

/** Waits until `probe` returns something other than undefined or false; fails with its description after the limit. */
export async function waitFor<T>(
  what: string,
  probe: () => T | Promise<T>,
  limitMs = LIMIT_MS,
): Promise<Exclude<T, undefined | false>> {
  const end = performance.now() + limitMs;
  let last: unknown;
  while (performance.now() < end) {
    const begun = performance.now();
    try {
      const value = await probe();
      if (value !== undefined && value !== false) return value as Exclude<T, undefined | false>;
    } catch (error) {
      last = error;
    }
    const rest = Math.min(Math.max(MIN_REST_MS, 4 * (performance.now() - begun)), MAX_REST_MS);
    await new Promise((resolve) => setTimeout(resolve, rest));
  }
  throw new Error(`waited ${limitMs} ms in vain for: ${what}`, { cause: last });
}
