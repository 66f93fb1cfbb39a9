import { uptime } from "node:os";
import { setTimeout as delay } from "node:timers/promises";

/** Time, passed in so that tests and simulations can own it. */
export interface Clock {
  /** Wall-clock milliseconds since 1970, for the wire only: it may jump. */
  now(): number;
  /** Monotonic milliseconds from an arbitrary origin, for measuring; stands still while the machine sleeps. */
  elapsed(): number;
  /** Milliseconds since the machine started, sleep included: what signed times are judged by. */
  sinceBoot(): number;
  /** Resolves after `ms`; rejects with the reason when aborted. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Calls `run` once after `ms`; the returned function takes it back. */
  after(ms: number, run: () => void): () => void;
}

/** Converts moments of the monotonic clock to wall time, for showing. */
export interface WallTimes {
  /** Milliseconds by which the wall clock is ahead of the monotonic one; changes only when the clock is set. */
  readonly ahead: number;
  /** Unix milliseconds of a moment of `elapsed()`, at least 0. */
  of(at: number): number;
}

/** Smaller differences are rounding: a moment must be shown the same each time. */
const STEP_MS = 1000;

/** Wall times that move together when the clock of the machine is set, so that ages stay what they are. */
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

/** The machine's own clock. A timer keeps the process alive until it rings or is taken back. */
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
