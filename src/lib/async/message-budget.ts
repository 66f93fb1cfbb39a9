import { TokenBucket } from "./token-bucket.ts";

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
  readonly #bucket: TokenBucket;
  #overSince: number | undefined;

  constructor({ messagesPerSecond, bytesPerSecond, burstSeconds, patienceSeconds }: BudgetLimits, now: number) {
    this.#messageMs = 1000 / messagesPerSecond;
    this.#byteMs = 1000 / bytesPerSecond;
    this.#burstMs = burstSeconds * 1000;
    this.#patienceMs = patienceSeconds * 1000;
    this.#bucket = new TokenBucket({ perSecond: 1000, burst: this.#burstMs }, now);
  }

  /** Charges what arrived; `now` is monotonic milliseconds. */
  charge(
    { messages = 0, bytes = 0 }: { readonly messages?: number; readonly bytes?: number },
    now: number,
  ): BudgetVerdict {
    this.#bucket.take(messages * this.#messageMs + bytes * this.#byteMs, now);
    const leftMs = this.#bucket.available(now);
    if (leftMs >= 0) {
      // A peer at the sustained rate stays near the burst limit; only idle time ends the period over budget.
      if (leftMs >= this.#burstMs / 2) this.#overSince = undefined;
      return WITHIN;
    }
    this.#overSince ??= now;
    const ms = Math.max(MIN_PAUSE_MS, Math.ceil(-leftMs));
    return now + ms - this.#overSince > this.#patienceMs ? EXCEEDED : { kind: "pause", ms };
  }
}
