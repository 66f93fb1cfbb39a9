import { HostError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { BackgroundOptions } from "../../lib/async/background.ts";

/** Runs work in transactions over some of the stores. */
export interface Transact<Parts> {
  /**
   * Runs `work` in a transaction: whole, or not at all if it rejects. `work` may run again after a conflict with another transaction,
   * so it has no effect but on `tx`; what follows from it comes after `transact` resolved. Within it only `tx` is used.
   * @throws {HostError} `store-unavailable` if the database fails, or after too many conflicts
   */
  transact<T>(work: (tx: Parts) => Promise<T>): Promise<T>;
}

const REPEAT_MS = 5000;

/** Repeats background work while the database cannot be used; it may be stored twice if the answer to a commit was lost. */
export const whileUnavailable = (clock: Clock): NonNullable<BackgroundOptions["repeat"]> => ({
  pauseMs: REPEAT_MS,
  clock,
  isTemporary: (error) => error instanceof HostError && error.code === "store-unavailable",
});
