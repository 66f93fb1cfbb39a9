import { AgentError, SessionError } from "../errors.ts";
import type { Clock } from "../host/clock.ts";
import type { TransferEvent } from "../protocol/transfer.ts";

const PAUSES_MS = [1000, 2000, 4000];
const MAX_RETRY_AFTER_MS = 60_000;

/** What may have passed a moment later; anything else fails the same way again. */
const PASSING: ReadonlySet<string> = new Set([
  "resolve-failed",
  "connect-failed",
  "proxy-refused",
  "tls-failed",
  "cut-off",
  "stalled",
  "bad-length",
  "busy",
]);

export interface Retrying {
  readonly clock: Clock;
  readonly emit: (event: TransferEvent) => void;
  /** From 0 to 1: how much is added to each pause, so that what failed together does not come back together. */
  readonly random: () => number;
}

/**
 * Carries out an attempt until it succeeds, at most three times more, after pauses of 1, 2 and 4 seconds or what the other end asked
 * for. An error's `details.retryAfterMs` says the latter; `details.isFinal` that nothing is to be repeated.
 * @throws what the last attempt threw
 */
export async function inAttempts<T>(
  attempt: () => Promise<T>,
  { clock, emit, random }: Retrying,
  signal: AbortSignal,
): Promise<T> {
  for (let failures = 0; ; failures += 1) {
    try {
      return await attempt();
    } catch (error) {
      const pause = PAUSES_MS[failures];
      if (signal.aborted || pause === undefined || !isPassing(error)) throw error;
      const asked = error.details?.["retryAfterMs"];
      const afterMs =
        typeof asked === "number" ? Math.min(asked, MAX_RETRY_AFTER_MS) : pause + Math.floor((pause * random()) / 4);
      emit({ is: "retry", reason: error.message, afterMs });
      await clock.sleep(afterMs, signal);
    }
  }
}

function isPassing(error: unknown): error is SessionError {
  return error instanceof SessionError && PASSING.has(error.code) && error.details?.["isFinal"] !== true;
}

/** An error as the event that ends a transfer; of what nobody expected only that it happened. */
export function failureOf(error: unknown): TransferEvent {
  if (error instanceof AgentError) return { is: "failed", code: error.code, message: error.message };
  return { is: "failed", code: "internal", message: error instanceof Error ? error.message : "an unknown failure" };
}
