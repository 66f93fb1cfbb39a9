import { AgentError } from "../../errors.ts";
import type { Clock } from "../clock.ts";

/** How long fetching may take, and how often it is tried. */
export interface FetchLimits {
  readonly attempts: number;
  /** Without a byte. */
  readonly stallMs: number;
  /** Judged over `rateMs`. */
  readonly minBytesPerSecond: number;
  readonly rateMs: number;
  /** Of all attempts together. */
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
  /** The codes of what may not fail a moment later. */
  readonly passing?: ReadonlySet<string>;
  /** From 0 to 1: how much is added to a pause, so that what failed together does not come back together. */
  readonly random: () => number;
  /** Told of each attempt that failed and is repeated. */
  readonly onRetry?: (error: Error, afterMs: number) => void;
}

/** What may not fail a moment later of any connection; anything else fails the same way again. */
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
 * Carries out an attempt until it succeeds, with pauses that grow, or as long as the other end asked for. An error's
 * `details.retryAfterMs` says the latter; `details.isFinal` that nothing is to be repeated.
 * @throws what the last one threw
 */
export async function retried<T>(
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
      const pause = Math.min(limits.maxPauseMs, limits.firstPauseMs * 2 ** (failures - 1));
      const afterMs =
        typeof asked === "number" ? Math.min(asked, limits.maxPauseMs) : Math.floor(pause * (1 + random() / 4));
      onRetry?.(error, afterMs);
      await clock.sleep(afterMs, signal);
    }
  }
}
