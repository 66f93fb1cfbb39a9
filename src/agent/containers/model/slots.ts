import { untilAborted } from "../../../lib/async/until-aborted.ts";

/** Bounds concurrency; later callers wait in order. */
export class Slots {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(count: number) {
    this.#free = count;
  }

  /** Waits for a slot; rejects with the signal's reason if aborted first. */
  async run<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    await this.#enter(signal);
    try {
      return await work();
    } finally {
      this.#leave();
    }
  }

  async #enter(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (this.#free > 0) {
      this.#free -= 1;
      return;
    }
    let enter = (): void => undefined;
    const freed = new Promise<void>((resolve) => {
      enter = resolve;
    });
    this.#waiting.push(enter);
    try {
      await untilAborted(freed, signal);
    } catch (error) {
      const at = this.#waiting.indexOf(enter);
      // The slot may have been granted at the moment of the abort.
      if (at < 0) this.#leave();
      else this.#waiting.splice(at, 1);
      throw error;
    }
  }

  #leave(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free += 1;
    else next();
  }
}
