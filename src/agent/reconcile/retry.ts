/** A random number in [0, 1). */
export type Random = () => number;

const FIRST_MS = 1000;
const CAP_MS = 300_000;

/** Returns the delay before a retry after the n-th consecutive failure, in milliseconds: 1 s doubling to 5 min, the upper half random. */
export function retryAfter(failures: number, random: Random): number {
  const ceiling = Math.min(CAP_MS, FIRST_MS * 2 ** Math.min(Math.max(failures - 1, 0), 16));
  return ceiling / 2 + (random() * ceiling) / 2;
}
