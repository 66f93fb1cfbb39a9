/** When round trips are too long: samples in a row decide. Milliseconds. */
export interface LatencyLimit {
  readonly maxLatencyMs: number;
  readonly triggerCount: number;
  readonly recoverCount: number;
}

/** How many samples in a row were above, or no longer above, and whether that is told. */
export interface LatencyState {
  readonly isTriggered: boolean;
  readonly inARow: number;
}

export const INITIAL_LATENCY: LatencyState = { isTriggered: false, inARow: 0 };

/** Counts one sample: what is not told yet needs so many above in a row, what is told so many that are not. Pure. */
export function nextLatency(state: LatencyState, limit: LatencyLimit, rttMs: number): LatencyState {
  const { isTriggered } = state;
  const isAbove = rttMs > limit.maxLatencyMs;
  if (isAbove === isTriggered) return { isTriggered, inARow: 0 };
  const inARow = state.inARow + 1;
  const needed = isTriggered ? limit.recoverCount : limit.triggerCount;
  return inARow >= needed ? { isTriggered: !isTriggered, inARow: 0 } : { isTriggered, inARow };
}
