/** A probe that runs programs takes the machine from what it waits for: each rests four times as long as it took, this at most. */
const MAX_REST_MS = 1000;
const MIN_REST_MS = 20;
/** Only what never comes takes so long; a machine that is busy with other work may take minutes for a second. */
const LIMIT_MS = 120_000;

/** Waits until `probe` gives something else than undefined or false; fails with its description when the limit passes. */
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
