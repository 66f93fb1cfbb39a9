/** Cycles within the window that make a connection flap, and how many more repeat the event. */
export const FLAPPING_CYCLES = 10;
export const FLAPPING_REPEAT = 120;
export const FLAPPING_WINDOW_MS = 5 * 60_000;

/** What is remembered of one node's reconnects; at most ten times. */
export interface Flapping {
  /** Monotonic times of the newest cycles within the window, oldest first. */
  readonly recent: readonly number[];
  /** Cycles since the event was raised last; undefined while the connection counts as stable. */
  readonly sinceRaised: number | undefined;
}

export const STABLE: Flapping = { recent: [], sinceRaised: undefined };

/** Counts one disconnect and reconnect; `raise` asks for the event. Pure. */
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

/** Judges a quiet node: undefined once nothing needs remembering, `isOver` when a raised event is to be cleared. Pure. */
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
