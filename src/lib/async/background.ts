import { toError } from "../../errors.ts";

/** Limited asynchronous work that nobody waits for, until it is closed. */
export class Background {
  readonly #running = new Set<Promise<void>>();
  readonly #limit: number;
  readonly #onFailure: (error: Error) => void;

  /** @param limit number of tasks at a time; further ones are dropped */
  constructor({ limit, onFailure }: { readonly limit: number; readonly onFailure: (error: Error) => void }) {
    this.#limit = limit;
    this.#onFailure = onFailure;
  }

  /** Starts a task, whose failure is reported. Returns false if it is dropped at the limit. */
  run(task: () => Promise<void>): boolean {
    if (this.#running.size >= this.#limit) return false;
    const running = task()
      .catch((error: unknown) => this.#onFailure(toError(error)))
      .finally(() => this.#running.delete(running));
    this.#running.add(running);
    return true;
  }

  /** Resolves once no task is left. */
  async settled(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running);
  }
}
