import { uptime } from "node:os";
import { setTimeout as delay } from "node:timers/promises";

/** The time source, passed in so that tests and simulations can control it. */
export interface Clock {
  /** Returns wall-clock milliseconds since 1970. For the wire only, because it may jump. */
  now(): number;
  /** Returns monotonic milliseconds from an arbitrary origin, for measuring; stops while the machine is suspended. */
  elapsed(): number;
  /** Returns milliseconds since boot, including suspended time, for checking signed times. */
  sinceBoot(): number;
  /** Resolves after `ms` milliseconds; rejects with the signal's reason when aborted. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Calls `run` once after `ms` milliseconds; the returned function cancels it. */
  after(ms: number, run: () => void): () => void;
}

/** Converts monotonic times to wall-clock times, for display. */
export interface WallTimes {
  /** Milliseconds by which the wall clock is ahead of the monotonic clock; changes only when the clock is set. */
  readonly ahead: number;
  /** Returns the Unix milliseconds of an `elapsed()` time, at least 0. */
  of(at: number): number;
}

/** Smaller differences are rounding errors: the same moment must always display the same. */
const STEP_MS = 1000;

/** Returns wall times that shift together when the machine's clock is set, so that ages stay the same. */
export function wallTimes(clock: Pick<Clock, "now" | "elapsed">): WallTimes {
  let ahead = clock.now() - clock.elapsed();
  const current = (): number => {
    const found = clock.now() - clock.elapsed();
    if (Math.abs(found - ahead) >= STEP_MS) ahead = found;
    return ahead;
  };
  return {
    get ahead() {
      return current();
    },
    of: (at) => Math.max(0, Math.round(at + current())),
  };
}

/** Returns the machine's clock. A timer keeps the process alive until it fires or is cancelled. */
export function systemClock(): Clock {
  return {
    now: () => Date.now(),
    // `hrtime` reads the same clock as performance.now(), whose module costs 1 MB.
    elapsed: () => {
      const [seconds, nanoseconds] = process.hrtime();
      return seconds * 1000 + nanoseconds / 1e6;
    },
    sinceBoot: () => uptime() * 1000, // CLOCK_BOOTTIME, clock_gettime(2)
    sleep: (ms, signal) => delay(ms, undefined, signal === undefined ? {} : { signal }),
    after: (ms, run) => {
      const timer = setTimeout(run, ms).unref();
      return () => clearTimeout(timer);
    },
  };
}
