import { AsyncLocalStorage } from "node:async_hooks";
import { setImmediate as nextTurn } from "node:timers/promises";
import { CompiledQuery } from "kysely";
import type { OpenTransaction, Transactions } from "./database.ts";
import type { TransactionScope } from "./transactions.ts";

/** Limit of works that share a commit: reads wait for it meanwhile. */
const MAX_SHARED = 64;

const SAVEPOINT = CompiledQuery.raw("savepoint work");
const ROLLBACK = CompiledQuery.raw("rollback to work");
const RELEASE = CompiledQuery.raw("release work");

/** Transactions that share commits; `idle` resolves once no work waits. */
export interface SharedCommits extends Transactions {
  idle(): Promise<void>;
}

/** Outcome of a work; `settle` reports it to the caller, once it is committed. */
interface Outcome {
  readonly failure: { readonly error: unknown } | undefined;
  readonly settle: () => void;
}

/** A work that waits for its turn; it runs in the context of its caller. */
interface Waiting {
  readonly attempt: (tx: OpenTransaction) => Promise<Outcome>;
  readonly fail: (error: unknown) => void;
}

/**
 * Runs the works of one turn of the event loop one after another in one transaction, since a commit that waits for the disk costs more than
 * a work. Each settles after the commit. One that rejects is undone alone; a transaction that fails rejects all of its works.
 */
export function sharedCommits(transactions: Transactions, scope: TransactionScope): SharedCommits {
  const waiting: Waiting[] = [];
  let running: Promise<void> | undefined;
  let failures = 0;
  const runWaiting = async (): Promise<void> => {
    while (waiting.length > 0) {
      // Requests that came in the same turn have their works in line then.
      await nextTurn();
      const works = waiting.splice(0, MAX_SHARED);
      try {
        for (const { settle } of await transactions.run((tx) => runAll(tx, works))) settle();
      } catch (error) {
        for (const { fail } of works) fail(error);
      }
    }
    running = undefined;
  };
  return {
    run(work) {
      return new Promise((resolve, reject) => {
        scope.refuseWithin();
        const fail = (error: unknown): void => {
          failures += 1;
          reject(error);
        };
        const attempt = AsyncLocalStorage.bind(async (tx: OpenTransaction): Promise<Outcome> => {
          try {
            const result = await scope.within(() => work(tx));
            return { failure: undefined, settle: () => resolve(result) };
          } catch (error) {
            return { failure: { error }, settle: () => fail(error) };
          }
        });
        waiting.push({ attempt, fail });
        running ??= runWaiting();
      });
    },
    snapshot: (work) => transactions.snapshot(work),
    failures: () => failures,
    idle: async () => running,
  };
}

async function runAll(tx: OpenTransaction, works: readonly Waiting[]): Promise<readonly Outcome[]> {
  const outcomes: Outcome[] = [];
  for (const { attempt } of works) {
    await tx.executeQuery(SAVEPOINT);
    const outcome = await attempt(tx);
    if (outcome.failure !== undefined) await undo(tx, outcome.failure.error);
    await tx.executeQuery(RELEASE);
    outcomes.push(outcome);
  }
  return outcomes;
}

/** Undoes a work. @throws its error, if SQLite has undone the whole transaction, as for a full disk */
async function undo(tx: OpenTransaction, error: unknown): Promise<void> {
  try {
    await tx.executeQuery(ROLLBACK);
  } catch {
    throw error;
  }
}
