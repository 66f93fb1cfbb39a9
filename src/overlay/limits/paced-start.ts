import type { Clock } from "../../host/clock.ts";

/**
 * Starts flows after the connects that arrived with them were accepted. The runtime accepts one connection per listener
 * and turn of the event loop. In a burst, more work per turn would overflow the kernel's accept queue and lose
 * connects.
 */
export interface PacedStart {
  /** Schedules `start` for when a turn passes without a new connection, at the latest after 100 ms. */
  add(start: () => void): void;
}

const MAX_WAIT_MS = 100;
const STARTED_AT_ONCE = 16;

export function pacedStart(clock: Clock): PacedStart {
  let waiting: (() => void)[] = [];
  let next = 0;
  let hasAccepted = false;
  let waitUntil = 0;

  const startNext = (): void => {
    if (hasAccepted && clock.elapsed() < waitUntil) {
      hasAccepted = false;
      setImmediate(startNext);
      return;
    }
    for (const end = Math.min(next + STARTED_AT_ONCE, waiting.length); next < end; next += 1) waiting[next]?.();
    if (next < waiting.length) {
      setImmediate(startNext);
      return;
    }
    waiting = [];
    next = 0;
  };
  return {
    add(start) {
      hasAccepted = true;
      if (waiting.push(start) > 1) return;
      waitUntil = clock.elapsed() + MAX_WAIT_MS;
      setImmediate(startNext);
    },
  };
}
