const MIN_BURST_BYTES = 64 * 1024;
const BURST_MS = 100;

/**
 * Tokens are bytes. Taking may go into debt, since what was read cannot be put back; the debt is waited for. Bursts are 100 ms of the
 * rate, at least 64 KiB.
 */
export class TokenBucket {
  readonly #bytesPerMs: number;
  readonly #burst: number;
  #tokens: number;
  #at: number;

  /** `now` and every later time in milliseconds of one monotonic clock. */
  constructor(bitsPerSecond: number, now: number) {
    this.#bytesPerMs = bitsPerSecond / 8000;
    this.#burst = Math.max(MIN_BURST_BYTES, this.#bytesPerMs * BURST_MS);
    this.#tokens = this.#burst;
    this.#at = now;
  }

  /** Takes whatever was read and tells whether reading may go on. */
  take(bytes: number, now: number): boolean {
    this.#refill(now);
    this.#tokens -= bytes;
    return this.#tokens > 0;
  }

  /** Takes all of it or nothing. */
  takeIfAvailable(bytes: number, now: number): boolean {
    this.#refill(now);
    if (this.#tokens < bytes && this.#tokens < this.#burst) return false;
    this.#tokens -= bytes;
    return true;
  }

  /** Bytes that may be taken without debt; negative in debt. */
  available(now: number): number {
    this.#refill(now);
    return this.#tokens;
  }

  /** Milliseconds until `bytes`, at most a burst, can be taken without debt. */
  waitFor(bytes: number, now: number): number {
    this.#refill(now);
    return Math.max(0, Math.ceil((Math.min(bytes, this.#burst) - this.#tokens) / this.#bytesPerMs));
  }

  #refill(now: number): void {
    this.#tokens = Math.min(this.#burst, this.#tokens + (now - this.#at) * this.#bytesPerMs);
    this.#at = now;
  }
}
