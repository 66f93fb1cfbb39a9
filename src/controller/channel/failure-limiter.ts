import type { Clock } from "../../host/clock.ts";

const WINDOW_MS = 60_000;
const MAX_FAILURES = 60;
const MAX_ADDRESSES = 10_000;

/** Counts failures by source address in windows of a minute, for as many addresses as memory allows. */
export class FailureLimiter {
  readonly #clock: Clock;
  readonly #failures = new Map<string, { readonly since: number; count: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Seconds until the address may try again, or undefined when it may now. */
  waitSeconds(address: string): number | undefined {
    const entry = this.#failures.get(address);
    if (entry === undefined || entry.count < MAX_FAILURES) return undefined;
    const leftMs = entry.since + WINDOW_MS - this.#clock.elapsed();
    return leftMs > 0 ? Math.ceil(leftMs / 1000) : undefined;
  }

  failed(address: string): void {
    const now = this.#clock.elapsed();
    const entry = this.#failures.get(address);
    if (entry !== undefined && now - entry.since < WINDOW_MS) {
      entry.count += 1;
      return;
    }
    this.#failures.delete(address);
    // The oldest window is the first in the map; at the bound it goes.
    const [oldest] = this.#failures.keys();
    if (oldest !== undefined && this.#failures.size >= MAX_ADDRESSES) this.#failures.delete(oldest);
    this.#failures.set(address, { since: now, count: 1 });
  }
}
