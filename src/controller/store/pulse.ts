import { HostError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";

/** Time after which a store that neither answers nor fails counts as stuck, in milliseconds; its own limits are shorter. */
const STUCK_MS = 60_000;

/**
 * Returns a function that asks the store and reports why it does not work, as known from the last answer; undefined if it works. A store
 * that cannot be reached is no fault of this process.
 */
export function storePulse(store: { check(): Promise<void> }, clock: Pick<Clock, "elapsed">): () => string | undefined {
  let askedAt: number | undefined;
  let failure: string | undefined;
  const ask = async (): Promise<void> => {
    askedAt = clock.elapsed();
    try {
      await store.check();
      failure = undefined;
    } catch (error) {
      failure = error instanceof HostError && error.code === "store-unavailable" ? undefined : toError(error).message;
    }
    askedAt = undefined;
  };
  return () => {
    if (askedAt === undefined) void ask();
    else if (clock.elapsed() - askedAt > STUCK_MS) return "the store does not answer";
    return failure;
  };
}
