import { AgentError } from "../errors.ts";
import type { Clock } from "../host/clock.ts";
import { PASSING, retried } from "../host/releases/retried.ts";
import type { TransferEvent } from "../protocol/triggers/transfer.ts";

const LIMITS = { attempts: 4, firstPauseMs: 1000, maxPauseMs: 60_000 };
const PASSING_OF_TRANSFERS: ReadonlySet<string> = new Set([...PASSING, "bad-length"]);

export interface Attempting {
  readonly clock: Clock;
  readonly emit: (event: TransferEvent) => void;
  /** From 0 to 1: how much is added to each pause, so that what failed together does not come back together. */
  readonly random: () => number;
}

/**
 * Carries out an attempt until it succeeds, at most three times more, after pauses of 1, 2 and 4 seconds or what the other end asked for.
 * @throws what the last attempt threw
 */
export function inAttempts<T>(
  attempt: () => Promise<T>,
  { clock, emit, random }: Attempting,
  signal: AbortSignal,
): Promise<T> {
  const onRetry = ({ message: reason }: Error, afterMs: number): void => emit({ is: "retry", reason, afterMs });
  return retried(attempt, { clock, limits: LIMITS, passing: PASSING_OF_TRANSFERS, random, onRetry }, signal);
}

/** An error as the event that ends a transfer; of what nobody expected only that it happened. */
export function failureOf(error: unknown): TransferEvent {
  if (error instanceof AgentError) return { is: "failed", code: error.code, message: error.message };
  return { is: "failed", code: "internal", message: error instanceof Error ? error.message : "an unknown failure" };
}
