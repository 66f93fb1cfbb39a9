import { serialQueue } from "./serial-queue.ts";

interface Queue {
  readonly run: ReturnType<typeof serialQueue>;
  count: number;
  last: Promise<unknown>;
}

/**
 * Runs the tasks of one key one after another, in the order of the calls; those of different keys run concurrently. A task must not wait
 * for another one of its own key. Keeps nothing of a key without tasks.
 */
export class KeyedQueue {
  readonly #queues = new Map<string, Queue>();

  /** Number of tasks of a key that have not ended. */
  count(key: string): number {
    return this.#queues.get(key)?.count ?? 0;
  }

  /** Runs a task after all earlier ones of its key. A failed task rejects its own promise only. */
  run<T>(key: string, task: () => Promise<T>): Promise<T> {
    const queue = this.#queues.get(key) ?? { run: serialQueue(), count: 0, last: Promise.resolve() };
    this.#queues.set(key, queue);
    queue.count += 1;
    const mine = queue.run(task);
    const over = (): void => {
      queue.count -= 1;
      if (queue.count === 0) this.#queues.delete(key);
    };
    queue.last = mine.then(over, over);
    return mine;
  }

  /** Runs a task after all earlier ones of several keys, and before all later ones. */
  async runAll<T>(keys: readonly string[], task: () => Promise<T>): Promise<T> {
    let end = (): void => undefined;
    const ended = new Promise<void>((resolve) => {
      end = resolve;
    });
    // All keys are taken at once, so that two calls meet in the same order at each of them.
    const turns = keys.map(
      (key) =>
        new Promise<void>((begun) => {
          void this.run(key, () => {
            begun();
            return ended;
          });
        }),
    );
    try {
      await Promise.all(turns);
      return await task();
    } finally {
      end();
    }
  }

  /** Resolves once all tasks of the calls so far have ended. */
  async settled(): Promise<void> {
    await Promise.all([...this.#queues.values()].map(({ last }) => last));
  }
}
