/** Limits of the messages that a peer may send over one connection. */
export interface BudgetLimits {
  /** Sustained rates. A message is charged for itself and for its bytes. */
  readonly messagesPerSecond: number;
  readonly bytesPerSecond: number;
  /** Seconds' worth of the rates that may arrive at once. */
  readonly burstSeconds: number;
  /** Time limit of a peer over budget, with reading paused repeatedly. */
  readonly patienceSeconds: number;
}

/** Decision about a connection: continue reading, pause, or close it. */
export type BudgetVerdict =
  | { readonly kind: "within" }
  | { readonly kind: "pause"; readonly ms: number }
  | { readonly kind: "exceeded" };

/** Shortest pause; shorter ones only cost timers. */
const MIN_PAUSE_MS = 50;
const WITHIN: BudgetVerdict = { kind: "within" };
const EXCEEDED: BudgetVerdict = { kind: "exceeded" };

/**
 * Rate limit of the messages and bytes of one connection: one token bucket, measured in milliseconds of the sustained rates. A burst that
 * exceeds the balance is charged in full, and the debt lengthens the pause.
 */
export class MessageBudget {
  readonly #messageMs: number;
  readonly #byteMs: number;
  readonly #burstMs: number;
  readonly #patienceMs: number;
  /** Outstanding charge at time `#at`. */
  #spentMs = 0;
  #at: number;
  #overSince: number | undefined;

  constructor({ messagesPerSecond, bytesPerSecond, burstSeconds, patienceSeconds }: BudgetLimits, now: number) {
    this.#messageMs = 1000 / messagesPerSecond;
    this.#byteMs = 1000 / bytesPerSecond;
    this.#burstMs = burstSeconds * 1000;
    this.#patienceMs = patienceSeconds * 1000;
    this.#at = now;
  }

  /** Charges what arrived; `now` is monotonic milliseconds. */
  charge(
    { messages = 0, bytes = 0 }: { readonly messages?: number; readonly bytes?: number },
    now: number,
  ): BudgetVerdict {
    this.#spentMs = Math.max(0, this.#spentMs - (now - this.#at)) + messages * this.#messageMs + bytes * this.#byteMs;
    this.#at = now;
    const over = this.#spentMs - this.#burstMs;
    if (over <= 0) {
      // A peer at the sustained rate stays near the burst limit; only idle time ends the period over budget.
      if (this.#spentMs <= this.#burstMs / 2) this.#overSince = undefined;
      return WITHIN;
    }
    this.#overSince ??= now;
    const ms = Math.max(MIN_PAUSE_MS, Math.ceil(over));
    return now + ms - this.#overSince > this.#patienceMs ? EXCEEDED : { kind: "pause", ms };
  }
}
