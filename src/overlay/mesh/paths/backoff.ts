import { backoff, jitter, type Random } from "../../../lib/async/backoff.ts";

const FIRST_SPREAD_MS = 500;
/** Delays after a loss: a restarting gateway is back within seconds. */
const AFTER_LOSS_MS: readonly number[] = [500, 500, 500, 500, 500, 500, 1000, 1000];
const LIMITS = { firstMs: 1000, maxMs: 60_000 };

/**
 * Returns the delay of the next dial in milliseconds, with exponential backoff. After a loss: within half a second,
 * then as in `AFTER_LOSS_MS`; then from 1 s, doubling to 60 s, ±20 %. `failures` counts failed dials since the path was
 * last up. Pure except for `random`.
 */
export function redialDelay(failures: number, wasUp: boolean, random: Random): number {
  if (failures === 0) return wasUp ? random() * FIRST_SPREAD_MS : 0;
  const quick = wasUp ? AFTER_LOSS_MS : [];
  return jitter(quick[failures - 1] ?? backoff(failures - quick.length, LIMITS), [0.8, 1.2], random);
}
