/** Limits of round trips: consecutive samples decide. Milliseconds. */
export interface LatencyLimit {
  readonly maxLatencyMs: number;
  readonly triggerCount: number;
  readonly recoverCount: number;
}

/** Number of consecutive samples above, or no longer above, the limit, and whether that is reported. */
export interface LatencyState {
  readonly isTriggered: boolean;
  readonly inARow: number;
}

export const INITIAL_LATENCY: LatencyState = { isTriggered: false, inARow: 0 };

/** Counts one sample; a number of consecutive samples above the limit raises the condition, and of samples below clears it. Pure. */
export function nextLatency(state: LatencyState, limit: LatencyLimit, rttMs: number): LatencyState {
  const { isTriggered } = state;
  const isAbove = rttMs > limit.maxLatencyMs;
  if (isAbove === isTriggered) return { isTriggered, inARow: 0 };
  const inARow = state.inARow + 1;
  const needed = isTriggered ? limit.recoverCount : limit.triggerCount;
  return inARow >= needed ? { isTriggered: !isTriggered, inARow: 0 } : { isTriggered, inARow };
}
