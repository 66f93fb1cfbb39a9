import { SessionError } from "../errors.ts";
import type { Clock } from "../host/clock.ts";
import type { TransferEvent, TransferLimits } from "../protocol/triggers/transfer.ts";
import { defined } from "../lib/defined.ts";

const TICK_MS = 500;
/** Averaging windows of the reported rate and of the minimum rate. */
const RATE_MS = 5000;
const SLOW_MS = 60_000;

export interface MeterOptions {
  readonly clock: Clock;
  readonly limits: Pick<TransferLimits, "maxBytesPerSecond" | "minBytesPerSecond" | "stallMs" | "maxMs">;
  readonly emit: (event: TransferEvent) => void;
}

/**
 * Meters one transfer across its connections. Reports progress twice a second, limits the rate, and fails a transfer that stalls, that
 * averages below the minimum rate over a minute, or that exceeds its total time.
 */
export class Meter {
  /** Bytes transferred of the file. */
  bytes = 0;
  /** Size of the whole file, if known. */
  total: number | undefined;
  readonly #options: MeterOptions;
  readonly #begunAt: number;
  #moved = 0;
  #paidUntil: number;

  constructor(options: MeterOptions) {
    this.#options = options;
    this.#begunAt = options.clock.elapsed();
    this.#paidUntil = this.#begunAt;
  }

  /** Counts transferred bytes. */
  add(bytes: number): void {
    this.bytes += bytes;
    this.#moved += bytes;
    const { maxBytesPerSecond } = this.#options.limits;
    if (maxBytesPerSecond === undefined) return;
    this.#paidUntil = Math.max(this.#paidUntil, this.#options.clock.elapsed()) + (bytes * 1000) / maxBytesPerSecond;
  }

  /** Returns how many milliseconds to pause to stay below the maximum rate; 0 without a limit. */
  waitMs(): number {
    if (this.#options.limits.maxBytesPerSecond === undefined) return 0;
    return Math.max(0, this.#paidUntil - this.#options.clock.elapsed());
  }

  /** Returns the size of the next piece: at most an eighth of a second at the maximum rate, at least 4 KiB. */
  pieceBytes(most: number): number {
    const { maxBytesPerSecond } = this.#options.limits;
    if (maxBytesPerSecond === undefined) return most;
    return Math.min(most, Math.max(4096, Math.floor(maxBytesPerSecond / 8)));
  }

  /** Calls `fail` once with a {SessionError} `too-long` after the total time limit. Returns a function that cancels the timer. */
  limit(fail: (error: SessionError) => void): () => void {
    const { clock, limits } = this.#options;
    const left = this.#begunAt + limits.maxMs - clock.elapsed();
    return clock.after(Math.max(0, left), () =>
      fail(new SessionError("too-long", `the transfer took longer than ${seconds(limits.maxMs)}`)),
    );
  }

  /**
   * Watches one attempt: reports its progress and calls `fail` once with a {SessionError} `stalled` or `too-slow`. Returns a function
   * that stops the watch.
   */
  watch(fail: (error: SessionError) => void): () => void {
    const { clock, limits, emit } = this.#options;
    const samples: Sample[] = [{ at: clock.elapsed(), moved: this.#moved }];
    const tickMs = Math.min(TICK_MS, limits.stallMs);
    let movedAt = clock.elapsed();
    const tick = (): void => {
      const at = clock.elapsed();
      const stands = this.#moved === samples.at(-1)?.moved;
      // A pause for the maximum rate is not a stall of the peer.
      if (!stands || this.waitMs() > 0) movedAt = at;
      samples.push({ at, moved: this.#moved });
      while ((samples[1]?.at ?? at) <= at - SLOW_MS) samples.shift();
      if (!stands) emit(this.#progress(rateOf(samples.filter((sample) => sample.at >= at - RATE_MS))));
      const failure = this.#judge(at - movedAt, samples);
      if (failure === undefined) stop = clock.after(tickMs, tick);
      else fail(failure);
    };
    let stop = clock.after(tickMs, tick);
    return () => stop();
  }

  #judge(stoodMs: number, samples: readonly Sample[]): SessionError | undefined {
    const { stallMs, minBytesPerSecond } = this.#options.limits;
    if (stoodMs >= stallMs) return new SessionError("stalled", `nothing moved for ${seconds(stallMs)}`);
    const [first, last] = [samples[0], samples.at(-1)];
    if (first === undefined || last === undefined || last.at - first.at < SLOW_MS) return undefined;
    const rate = rateOf(samples);
    if (rate >= minBytesPerSecond) return undefined;
    return new SessionError("too-slow", `${rate} bytes a second over a minute are less than ${minBytesPerSecond}`);
  }

  #progress(rate: number): TransferEvent {
    return { is: "progress", bytes: this.bytes, ...defined({ total: this.total }), rate };
  }
}

/** A sample of the transferred bytes. */
interface Sample {
  readonly at: number;
  readonly moved: number;
}

/** Returns the rate from the first to the last sample, in whole bytes a second. */
function rateOf(samples: readonly Sample[]): number {
  const [first, last] = [samples[0], samples.at(-1)];
  if (first === undefined || last === undefined || last.at === first.at) return 0;
  return Math.round(((last.moved - first.moved) * 1000) / (last.at - first.at));
}

const seconds = (ms: number): string => `${ms / 1000} s`;
