import type { Random } from "../lib/async/backoff.ts";
import { AgentError } from "../errors.ts";
import type { Clock } from "../host/clock.ts";
import { PASSING, withRetries } from "../host/releases/retries.ts";
import type { TransferEvent } from "../protocol/triggers/transfer.ts";

const LIMITS = { attempts: 4, firstPauseMs: 1000, maxPauseMs: 60_000 };
const PASSING_OF_TRANSFERS: ReadonlySet<string> = new Set([...PASSING, "bad-length"]);

export interface Attempting {
  readonly clock: Clock;
  readonly emit: (event: TransferEvent) => void;
  readonly random: Random;
}

/**
 * Runs an attempt and retries it at most three times, after 1, 2 and 4 seconds or the delay that the server requested.
 * @throws the last attempt's error
 */
export function inAttempts<T>(
  attempt: () => Promise<T>,
  { clock, emit, random }: Attempting,
  signal: AbortSignal,
): Promise<T> {
  const onRetry = ({ message: reason }: Error, afterMs: number): void => emit({ is: "retry", reason, afterMs });
  return withRetries(attempt, { clock, limits: LIMITS, passing: PASSING_OF_TRANSFERS, random, onRetry }, signal);
}

/** Converts an error to a transfer's final event; unexpected errors are reported without details. */
export function failureOf(error: unknown): TransferEvent {
  if (error instanceof AgentError) return { is: "failed", code: error.code, message: error.message };
  return { is: "failed", code: "internal", message: error instanceof Error ? error.message : "an unknown failure" };
}
