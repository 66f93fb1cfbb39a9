import type { Clock } from "../../src/host/clock.ts";

interface Timer {
  readonly at: number;
  readonly order: number;
  readonly run: () => void;
}

/** A clock that stands still until moved; timers ring in order of their times. */
export class FakeClock implements Clock {
  #elapsed = 0;
  #wall: number;
  #order = 0;
  #asleep = 0;
  readonly #timers = new Set<Timer>();

  constructor(wall = Date.UTC(2026, 0, 1)) {
    this.#wall = wall;
  }

  now(): number {
    return this.#wall;
  }

  elapsed(): number {
    return this.#elapsed;
  }

  after(ms: number, run: () => void): () => void {
    this.#order += 1;
    const timer = { at: this.#elapsed + ms, order: this.#order, run };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  sinceBoot(): number {
    return this.#elapsed + this.#asleep;
  }

  /** Suspends the machine: timers and the monotonic clock stand still, the others continue. */
  sleepMachine(ms: number): void {
    this.#asleep += ms;
    this.#wall += ms;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      signal?.throwIfAborted();
      const cancel = this.after(ms, resolve);
      signal?.addEventListener("abort", () => {
        cancel();
        reject(signal.reason as Error);
      });
    });
  }

  /** Sets the wall clock only, as NTP or an operator does. */
  setWall(ms: number): void {
    this.#wall = ms;
  }

  get pendingTimers(): number {
    return this.#timers.size;
  }

  /** Advances the time, ringing every due timer and settling promises between them. */
  async advance(ms: number): Promise<void> {
    const end = this.#elapsed + ms;
    for (let timer = this.#next(end); timer !== undefined; timer = this.#next(end)) {
      this.#moveTo(timer.at);
      this.#timers.delete(timer);
      timer.run();
      await settle();
    }
    this.#moveTo(end);
    await settle();
  }

  #moveTo(at: number): void {
    this.#wall += at - this.#elapsed;
    this.#elapsed = at;
  }

  #next(end: number): Timer | undefined {
    let first: Timer | undefined;
    for (const timer of this.#timers) {
      if (timer.at > end) continue;
      if (first === undefined || timer.at < first.at || (timer.at === first.at && timer.order < first.order))
        first = timer;
    }
    return first;
  }
}

/** Lets everything that is ready run. */
export async function settle(): Promise<void> {
  for (let i = 0; i < 20; i += 1) await Promise.resolve();
}
