/** Transactions of the database. */
export interface Atomic {
  /** Runs `work` in one transaction, or in the open one. */
  atomic<T>(work: () => T): T;
  /** Number of failed transactions; state kept in memory about them may have been rolled back. */
  failures(): number;
}
