/** Returns a number in [0, 1); injected for tests. */
export type Random = () => number;

const FIRST_SPREAD_MS = 500;
/** Delays after a loss: a restarting gateway is back within seconds. */
const AFTER_LOSS_MS: readonly number[] = [500, 500, 500, 500, 500, 500, 1000, 1000];
const BASE_MS = 1000;
const CAP_MS = 60_000;
const JITTER = 0.2;

/**
 * Returns the delay of the next dial in milliseconds, with exponential backoff. After a loss: within half a second,
 * then as in `AFTER_LOSS_MS`; then from 1 s, doubling to 60 s, ±20 %. `failures` counts failed dials since the path was
 * last up. Pure except for `random`.
 */
export function redialDelay(failures: number, wasUp: boolean, random: Random): number {
  if (failures === 0) return wasUp ? random() * FIRST_SPREAD_MS : 0;
  const quick = wasUp ? AFTER_LOSS_MS : [];
  const base = quick[failures - 1] ?? BASE_MS * 2 ** Math.min(failures - 1 - quick.length, 16);
  return Math.min(CAP_MS, base) * (1 - JITTER + 2 * JITTER * random());
}
