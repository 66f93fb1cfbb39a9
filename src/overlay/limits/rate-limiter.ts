import type { Clock } from "../../host/clock.ts";
import { TokenBucket, type TokenRate } from "../../lib/async/token-bucket.ts";

/** Reads through rate limiters, which resume it. */
export interface LimitedReader {
  resumeReading(limiter: RateLimiter): void;
}

/**
 * Rate limiters of both directions. Of a listener, `in` is from its clients; of all tunnels, `in` is what is read from
 * them.
 */
export interface TwoWayLimiters {
  readonly in: RateLimiter;
  readonly out: RateLimiter;
}

/** Expected size of a flow's next read until one was seen. */
const FIRST_READ_BYTES = 64 * 1024;
/** Weight of the last read in the expected size. */
const LAST_READ_SHARE = 0.25;
const MIN_WAIT_MS = 20;
const MIN_BURST_BYTES = 64 * 1024;
const BURST_SECONDS = 0.1;
/** Maximum delay of a timer; Node would fire it immediately beyond that. */
const MAX_WAIT_MS = 3_600_000;

/** Limits the rate of one direction of a listener, shared by its flows in turn. Without a rate it does not limit. */
export class RateLimiter {
  readonly #clock: Clock;
  readonly #waiting = new Set<LimitedReader>();
  /** Readers that were resumed and have not read since. */
  readonly #resumed = new Set<LimitedReader>();
  #expectedRead = FIRST_READ_BYTES;
  #isWakeQueued = false;
  #bucket: TokenBucket | undefined;
  #cancel: (() => void) | undefined;

  constructor(clock: Clock, bitsPerSecond: number | undefined) {
    this.#clock = clock;
    this.setRate(bitsPerSecond);
  }

  get isOpen(): boolean {
    return this.#bucket === undefined;
  }

  /** Sets another rate, also for waiting flows. */
  setRate(bitsPerSecond: number | undefined): void {
    this.#bucket =
      bitsPerSecond === undefined ? undefined : new TokenBucket(byteRate(bitsPerSecond), this.#clock.elapsed());
    this.#cancel?.();
    this.#cancel = undefined;
    this.#resumed.clear();
    this.#wake();
  }

  /** Counts the bytes that `user` has read; false means that it must stop reading until it is resumed. */
  pass(user: LimitedReader, bytes: number): boolean {
    if (this.#bucket === undefined) return true;
    const hasMore = this.#bucket.take(bytes, this.#clock.elapsed());
    this.#expectedRead += (bytes - this.#expectedRead) * LAST_READ_SHARE;
    this.#resumed.delete(user);
    if (hasMore && this.#waiting.size === 0) return true;
    this.#waiting.add(user);
    // Resumes the next reader at once, not only when the timer fires.
    if (hasMore) this.#wakeSoon();
    else this.#arm();
    return false;
  }

  /** Takes the bytes of a datagram; false means that it must be dropped. */
  admits(bytes: number): boolean {
    return this.#bucket === undefined || this.#bucket.takeIfAvailable(bytes, this.#clock.elapsed());
  }

  /** Removes a reader that has ended. */
  leave(user: LimitedReader): void {
    this.#waiting.delete(user);
    this.#resumed.delete(user);
  }

  close(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    this.#waiting.clear();
    this.#resumed.clear();
  }

  #arm(): void {
    if (this.#cancel !== undefined || this.#bucket === undefined) return;
    const now = this.#clock.elapsed();
    // Waiting for a full burst would make slow rates stutter; not waiting would wake up for every byte.
    const wait = Math.min(this.#bucket.waitFor(1, now) + MIN_WAIT_MS, MAX_WAIT_MS);
    this.#cancel = this.#clock.after(wait, () => {
      this.#cancel = undefined;
      // A reader that has not read by now has nothing to read.
      this.#resumed.clear();
      this.#wake();
    });
  }

  /** Not within the call of a reader, which does not know yet that it has to wait. */
  #wakeSoon(): void {
    if (this.#isWakeQueued) return;
    this.#isWakeQueued = true;
    queueMicrotask(() => {
      this.#isWakeQueued = false;
      this.#wake();
    });
  }

  /** Resumes as many readers as there are bytes for, in turn. */
  #wake(): void {
    for (const user of this.#waiting) {
      const available = this.#bucket?.available(this.#clock.elapsed()) ?? Infinity;
      if (available - this.#resumed.size * this.#expectedRead <= 0) break;
      this.#waiting.delete(user);
      if (this.#bucket !== undefined) this.#resumed.add(user);
      user.resumeReading(this);
    }
    if (this.#waiting.size > 0) this.#arm();
  }
}

/** Returns the rate in bytes. A burst is 100 ms of the rate, at least 64 KiB. */
export function byteRate(bitsPerSecond: number): TokenRate {
  const perSecond = bitsPerSecond / 8;
  return { perSecond, burst: Math.max(MIN_BURST_BYTES, perSecond * BURST_SECONDS) };
}
