import { AsyncLocalStorage } from "node:async_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { HostError, InternalError } from "../../errors.ts";
import { serialQueue } from "../../lib/async/serial-queue.ts";
import type { Executor, OpenTransaction, Transactions } from "./database.ts";

/** Knows which asynchronous work runs in a transaction, so that it cannot use the database beside the transaction. */
export class TransactionScope {
  readonly #open = new AsyncLocalStorage<{ isOpen: boolean }>();

  /** Runs the work of a transaction. What it leaves running is free again once the transaction has ended. */
  async within<T>(work: () => Promise<T>): Promise<T> {
    const scope = { isOpen: true };
    try {
      return await this.#open.run(scope, work);
    } finally {
      scope.isOpen = false;
    }
  }

  /** @throws {InternalError} `nested-transaction` within the work of a transaction */
  refuseWithin(): void {
    if (this.#open.getStore()?.isOpen !== true) return;
    // On SQLite it would wait for the end of its own transaction; on PostgreSQL it would see and change other rows than it.
    throw new InternalError("nested-transaction", "a statement within a transaction must use the transaction");
  }
}

const MAX_ATTEMPTS = 12;
/** Attempt from which on a transaction runs alone, so that many writers of one row all come to an end. */
const ALONE_FROM = 3;
const MAX_PAUSE_MS = 250;

/** @param isConflict whether an error says that the transaction failed only because of another one */
export function transactionsOf(
  db: Executor,
  scope: TransactionScope,
  isConflict: (error: unknown) => boolean = () => false,
): Transactions {
  let failures = 0;
  const attempt = <T>(work: (tx: OpenTransaction) => Promise<T>): Promise<T> =>
    db.transaction().execute((tx) => scope.within(() => work(tx)));
  const inTurn = serialQueue();
  /** Transactions in line to run alone, and the end of the last of them. */
  const line: { length: number; end: Promise<unknown> } = { length: 0, end: Promise.resolve() };
  const persist = async <T>(work: (tx: OpenTransaction) => Promise<T>, from = 1): Promise<T> => {
    for (let attempts = from; ; attempts += 1) {
      if (from === 1) {
        if (attempts === ALONE_FROM) return runAlone(work);
        while (line.length > 0) await line.end;
      }
      try {
        return await attempt(work);
      } catch (error) {
        if (!isConflict(error)) throw error;
        if (attempts === MAX_ATTEMPTS) {
          const message = `the store is busy: a transaction conflicted with others ${attempts} times; try again`;
          throw new HostError("store-unavailable", message, { cause: error });
        }
      }
      // Random, so that two that conflicted do not meet again.
      await sleep(Math.random() * Math.min(MAX_PAUSE_MS, 5 * 2 ** attempts));
    }
  };
  /** Goes on with a transaction that conflicted while no other one of this program begins; those that have begun end. */
  const runAlone = async <T>(work: (tx: OpenTransaction) => Promise<T>): Promise<T> => {
    line.length += 1;
    const mine = inTurn(() => persist(work, ALONE_FROM));
    line.end = mine.catch(() => undefined);
    try {
      return await mine;
    } finally {
      line.length -= 1;
    }
  };
  return {
    async run(work) {
      // Before it waits for others: it may be within the one that they wait for.
      scope.refuseWithin();
      try {
        return await persist(work);
      } catch (error) {
        failures += 1;
        throw error;
      }
    },
    snapshot: (work) =>
      db
        .transaction()
        .setIsolationLevel("repeatable read")
        .setAccessMode("read only")
        .execute((tx) => scope.within(() => work(tx))),
    failures: () => failures,
  };
}
