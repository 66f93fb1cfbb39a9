import { backoff, jitter, type Random } from "../../lib/async/backoff.ts";
import { AgentError } from "../../errors.ts";
import type { Clock } from "../clock.ts";

/** Limits on the time and attempts of a fetch. */
export interface FetchLimits {
  readonly attempts: number;
  /** Time without any data. */
  readonly stallMs: number;
  /** Minimum rate, averaged over `rateMs`. */
  readonly minBytesPerSecond: number;
  readonly rateMs: number;
  /** Time limit of all attempts together. */
  readonly maxMs: number;
  readonly firstPauseMs: number;
  readonly maxPauseMs: number;
}

export const FETCH_LIMITS: FetchLimits = {
  attempts: 8,
  stallMs: 30_000,
  minBytesPerSecond: 1024,
  rateMs: 60_000,
  maxMs: 7_200_000,
  firstPauseMs: 1000,
  maxPauseMs: 60_000,
};

export interface Retrying {
  readonly clock: Clock;
  readonly limits?: Pick<FetchLimits, "attempts" | "firstPauseMs" | "maxPauseMs">;
  /** Error codes that are retried. */
  readonly passing?: ReadonlySet<string>;
  readonly random: Random;
  /** Called for each failed attempt that is retried. */
  readonly onRetry?: (error: Error, afterMs: number) => void;
}

/** Error codes of temporary connection failures; other errors would recur. */
export const PASSING: readonly string[] = [
  "resolve-failed",
  "connect-failed",
  "proxy-refused",
  "tls-failed",
  "cut-off",
  "stalled",
  "busy",
];
const PASSING_OF_FILES: ReadonlySet<string> = new Set([...PASSING, "too-slow", "bad-range"]);

/**
 * Runs an attempt until it succeeds, with exponential backoff or the delay that the peer requests. An error's
 * `details.retryAfterMs` is that delay; `details.isFinal` prevents a retry.
 * @throws the error of the last attempt
 */
export async function withRetries<T>(
  attempt: () => Promise<T>,
  { clock, limits = FETCH_LIMITS, passing = PASSING_OF_FILES, random, onRetry }: Retrying,
  signal: AbortSignal,
): Promise<T> {
  for (let failures = 1; ; failures += 1) {
    try {
      return await attempt();
    } catch (error) {
      const isLast = signal.aborted || failures >= limits.attempts;
      if (isLast || !(error instanceof AgentError) || !passing.has(error.code) || error.details?.["isFinal"] === true) {
        throw error;
      }
      const asked = error.details?.["retryAfterMs"];
      const pause = backoff(failures, { firstMs: limits.firstPauseMs, maxMs: limits.maxPauseMs });
      const afterMs =
        typeof asked === "number" ? Math.min(asked, limits.maxPauseMs) : Math.floor(jitter(pause, [1, 1.25], random));
      onRetry?.(error, afterMs);
      await clock.sleep(afterMs, signal);
    }
  }
}
