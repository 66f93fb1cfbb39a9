/** Returns a number in [0, 1). */
export type Random = () => number;

export interface BackoffLimits {
  readonly firstMs: number;
  readonly maxMs: number;
  /** Growth from one delay to the next; 2 by default. */
  readonly factor?: number;
}

/** Returns the delay after the n-th consecutive failure, in milliseconds: `firstMs` for the first, then growing up to `maxMs`. */
export function backoff(failures: number, { firstMs, maxMs, factor = 2 }: BackoffLimits): number {
  return Math.min(maxMs, firstMs * factor ** Math.max(failures - 1, 0));
}

/** Multiplies by a random factor between `least` and `most`, so that peers that failed together do not return together. */
export function jitter(ms: number, [least, most]: readonly [least: number, most: number], random: Random): number {
  const share = random();
  return ms * (least * (1 - share) + most * share);
}
