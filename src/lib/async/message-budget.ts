/** Limits of what a peer may send over one connection. */
export interface BudgetLimits {
  /** Sustained rates. A message is charged for itself and for its bytes. */
  readonly messagesPerSecond: number;
  readonly bytesPerSecond: number;
  /** Seconds' worth of the rates that may arrive at once. */
  readonly burstSeconds: number;
  /** For how long the peer may stay over its budget while reading is paused again and again. */
  readonly patienceSeconds: number;
}

/** Whether to go on reading, to pause, or to end the connection. */
export type BudgetVerdict =
  | { readonly kind: "within" }
  | { readonly kind: "pause"; readonly ms: number }
  | { readonly kind: "exceeded" };

/** Shortest pause: shorter ones would only cost timers. */
const MIN_PAUSE_MS = 50;
const WITHIN: BudgetVerdict = { kind: "within" };
const EXCEEDED: BudgetVerdict = { kind: "exceeded" };

/**
 * Budget of one connection for what its peer sends: a token bucket counted in milliseconds of the sustained rate, so that messages and
 * bytes draw on the same one. What arrived together is charged even when it is more than was left: the debt is paid by a longer pause.
 */
export class MessageBudget {
  readonly #messageMs: number;
  readonly #byteMs: number;
  readonly #burstMs: number;
  readonly #patienceMs: number;
  /** The charge that was not recovered yet, at `#at`. */
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
      // A peer that sends at the sustained rate hovers at the burst; only real quiet ends the time over budget.
      if (this.#spentMs <= this.#burstMs / 2) this.#overSince = undefined;
      return WITHIN;
    }
    this.#overSince ??= now;
    const ms = Math.max(MIN_PAUSE_MS, Math.ceil(over));
    return now + ms - this.#overSince > this.#patienceMs ? EXCEEDED : { kind: "pause", ms };
  }
}
