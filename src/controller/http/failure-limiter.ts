import type { Clock } from "../../host/clock.ts";

const WINDOW_MS = 60_000;
const MAX_FAILURES = 60;
const MAX_PREFIXES = 10_000;

/** Counts failures per source prefix in windows of one minute, for at most 10,000 prefixes. Failures of hidden clients are not counted. */
export class FailureLimiter {
  readonly #clock: Clock;
  readonly #maxFailures: number;
  readonly #failures = new Map<string, { readonly since: number; count: number }>();

  constructor(clock: Clock, maxFailures = MAX_FAILURES) {
    this.#clock = clock;
    this.#maxFailures = maxFailures;
  }

  /** Returns the seconds until the prefix may try again; undefined if it may at once. */
  waitSeconds(prefix: string | undefined): number | undefined {
    const entry = prefix === undefined ? undefined : this.#failures.get(prefix);
    if (entry === undefined || entry.count < this.#maxFailures) return undefined;
    const leftMs = entry.since + WINDOW_MS - this.#clock.elapsed();
    return leftMs > 0 ? Math.ceil(leftMs / 1000) : undefined;
  }

  failed(prefix: string | undefined): void {
    if (prefix === undefined) return;
    const now = this.#clock.elapsed();
    const entry = this.#failures.get(prefix);
    if (entry !== undefined && now - entry.since < WINDOW_MS) {
      entry.count += 1;
      return;
    }
    this.#failures.delete(prefix);
    // The oldest window is the first in the map; it is dropped at the limit.
    const [oldest] = this.#failures.keys();
    if (oldest !== undefined && this.#failures.size >= MAX_PREFIXES) this.#failures.delete(oldest);
    this.#failures.set(prefix, { since: now, count: 1 });
  }
}
