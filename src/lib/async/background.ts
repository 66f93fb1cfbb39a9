import { toError } from "../../errors.ts";

export interface BackgroundOptions {
  /** Number of tasks at a time; further ones are dropped. */
  readonly limit: number;
  readonly onFailure: (error: Error) => void;
  /** Runs a task again after a pause while it fails with such an error, until the end is waited for. */
  readonly repeat?: {
    readonly pauseMs: number;
    readonly clock: { sleep(ms: number, signal: AbortSignal): Promise<void> };
    isTemporary(error: unknown): boolean;
  };
}

/** Limited asynchronous work that nobody waits for, until it is closed. */
export class Background {
  readonly #running = new Set<Promise<void>>();
  readonly #options: BackgroundOptions;
  readonly #ending = new AbortController();

  constructor(options: BackgroundOptions) {
    this.#options = options;
  }

  /** Starts a task, whose failure is reported. Returns false if it is dropped at the limit. */
  run(task: () => Promise<void>): boolean {
    const { limit, onFailure } = this.#options;
    if (this.#running.size >= limit) return false;
    const running = this.#persist(task)
      .catch((error: unknown) => onFailure(toError(error)))
      .finally(() => this.#running.delete(running));
    this.#running.add(running);
    return true;
  }

  /** Gives every task that is being repeated its last run, and resolves once no task is left. */
  async settled(): Promise<void> {
    this.#ending.abort();
    while (this.#running.size > 0) await Promise.all(this.#running);
  }

  async #persist(task: () => Promise<void>): Promise<void> {
    const { repeat } = this.#options;
    const { signal } = this.#ending;
    for (;;) {
      try {
        await task();
        return;
      } catch (error) {
        if (repeat?.isTemporary(error) !== true || signal.aborted) throw error;
      }
      await repeat.clock.sleep(repeat.pauseMs, signal).catch(() => undefined);
    }
  }
}
