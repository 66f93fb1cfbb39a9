/** A number in [0, 1), passed in so that tests own it. */
export type Random = () => number;

const FIRST_SPREAD_MS = 500;
/** A gateway that restarts is back within seconds, and whoever lost it looks for it that often. */
const AFTER_LOSS_MS: readonly number[] = [500, 500, 500, 500, 500, 500, 1000, 1000];
const BASE_MS = 1000;
const CAP_MS = 60_000;
const JITTER = 0.2;

/**
 * Milliseconds until a path is dialled again: at once, spread over half a second, when it was up until now; then from 1 s, doubling
 * to 60 s, give or take a fifth. `failures` counts the attempts that failed since it was up, or ever. Pure but for `random`.
 */
export function redialDelay(failures: number, wasUp: boolean, random: Random): number {
  if (failures === 0) return wasUp ? random() * FIRST_SPREAD_MS : 0;
  const quick = wasUp ? AFTER_LOSS_MS : [];
  const base = quick[failures - 1] ?? BASE_MS * 2 ** Math.min(failures - 1 - quick.length, 16);
  return Math.min(CAP_MS, base) * (1 - JITTER + 2 * JITTER * random());
}
