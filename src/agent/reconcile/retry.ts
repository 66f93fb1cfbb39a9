/** A random number in [0, 1). */
export type Random = () => number;

const FIRST_MS = 1000;
const CAP_MS = 300_000;

/** Milliseconds until a section is tried again after its n-th failure in a row: doubled from 1 s to 5 min, of which the upper half is random. */
export function retryAfter(failures: number, random: Random): number {
  const ceiling = Math.min(CAP_MS, FIRST_MS * 2 ** Math.min(Math.max(failures - 1, 0), 16));
  return ceiling / 2 + (random() * ceiling) / 2;
}
