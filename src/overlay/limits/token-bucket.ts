const MIN_BURST_BYTES = 64 * 1024;
const BURST_MS = 100;

/**
 * Limits bytes to a rate. Taking may go into debt, since bytes that were read cannot be put back. A burst is 100 ms of
 * the rate, at least 64 KiB.
 */
export class TokenBucket {
  readonly #bytesPerMs: number;
  readonly #burst: number;
  #tokens: number;
  #at: number;

  /** `now` and all later times are milliseconds of one monotonic clock. */
  constructor(bitsPerSecond: number, now: number) {
    this.#bytesPerMs = bitsPerSecond / 8000;
    this.#burst = Math.max(MIN_BURST_BYTES, this.#bytesPerMs * BURST_MS);
    this.#tokens = this.#burst;
    this.#at = now;
  }

  /** Takes the bytes that were read; reports whether reading may continue. */
  take(bytes: number, now: number): boolean {
    this.#refill(now);
    this.#tokens -= bytes;
    return this.#tokens > 0;
  }

  /** Takes all bytes or none. */
  takeIfAvailable(bytes: number, now: number): boolean {
    this.#refill(now);
    if (this.#tokens < bytes && this.#tokens < this.#burst) return false;
    this.#tokens -= bytes;
    return true;
  }

  /** Bytes available without debt; negative in debt. */
  available(now: number): number {
    this.#refill(now);
    return this.#tokens;
  }

  /** Milliseconds until `bytes`, at most a burst, are available. */
  waitFor(bytes: number, now: number): number {
    this.#refill(now);
    return Math.max(0, Math.ceil((Math.min(bytes, this.#burst) - this.#tokens) / this.#bytesPerMs));
  }

  #refill(now: number): void {
    this.#tokens = Math.min(this.#burst, this.#tokens + (now - this.#at) * this.#bytesPerMs);
    this.#at = now;
  }
}
