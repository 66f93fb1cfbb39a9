export interface TokenRate {
  /** Tokens added per second. */
  readonly perSecond: number;
  /** Maximum number of tokens, and the initial one. */
  readonly burst: number;
}

/** Limits a rate; the caller passes the time, in milliseconds of one monotonic clock. */
export class TokenBucket {
  readonly #perMs: number;
  readonly #burst: number;
  #tokens: number;
  #at: number;

  constructor({ perSecond, burst }: TokenRate, now: number) {
    this.#perMs = perSecond / 1000;
    this.#burst = burst;
    this.#tokens = burst;
    this.#at = now;
  }

  /** Takes tokens unconditionally, if necessary into debt; reports whether tokens are left. */
  take(tokens: number, now: number): boolean {
    this.#refill(now);
    this.#tokens -= tokens;
    return this.#tokens > 0;
  }

  /** Takes all tokens or none; more than a burst are taken from a full bucket, into debt. */
  takeIfAvailable(tokens: number, now: number): boolean {
    this.#refill(now);
    if (this.#tokens < tokens && this.#tokens < this.#burst) return false;
    this.#tokens -= tokens;
    return true;
  }

  /** Tokens available without debt; negative in debt. */
  available(now: number): number {
    this.#refill(now);
    return this.#tokens;
  }

  /** Milliseconds until `tokens`, at most a burst, are available. */
  waitFor(tokens: number, now: number): number {
    this.#refill(now);
    return Math.max(0, Math.ceil((Math.min(tokens, this.#burst) - this.#tokens) / this.#perMs));
  }

  #refill(now: number): void {
    this.#tokens = Math.min(this.#burst, this.#tokens + (now - this.#at) * this.#perMs);
    this.#at = now;
  }
}
