/** Number of reconnects within the window that count as flapping, and the number after which the event repeats. */
const FLAPPING_CYCLES = 10;
const FLAPPING_REPEAT = 120;
export const FLAPPING_WINDOW_MS = 5 * 60_000;

/** Reconnect history of one node; at most ten entries. */
export interface Flapping {
  /** Monotonic times of the latest reconnects within the window, oldest first, in milliseconds. */
  readonly recent: readonly number[];
  /** Reconnects since the event was last raised; undefined while the connection is stable. */
  readonly sinceRaised: number | undefined;
}

export const STABLE: Flapping = { recent: [], sinceRaised: undefined };

/** Counts one reconnect; `raise` requests the event. Pure. */
export function countCycle(state: Flapping, now: number): { readonly state: Flapping; readonly raise: boolean } {
  const recent = [...inWindow(state.recent, now), now].slice(-FLAPPING_CYCLES);
  if (state.sinceRaised !== undefined && recent.length > 1) {
    const since = state.sinceRaised + 1;
    const raise = since >= FLAPPING_REPEAT;
    return { state: { recent, sinceRaised: raise ? 0 : since }, raise };
  }
  const raise = recent.length >= FLAPPING_CYCLES;
  return { state: { recent, sinceRaised: raise ? 0 : undefined }, raise };
}

/** Ages the history of a quiet node: `state` is undefined once it is empty, `isOver` if a raised event must be cleared. Pure. */
export function settle(
  state: Flapping,
  now: number,
): { readonly state: Flapping | undefined; readonly isOver: boolean } {
  if (inWindow(state.recent, now).length > 0) return { state, isOver: false };
  return { state: undefined, isOver: state.sinceRaised !== undefined };
}

function inWindow(times: readonly number[], now: number): readonly number[] {
  return times.filter((time) => now - time < FLAPPING_WINDOW_MS);
}
