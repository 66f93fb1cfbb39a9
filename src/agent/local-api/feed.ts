const MAX_WAITING = 1000;

/** A bounded queue from a caller to an iteration. An item beyond 1000 waiting ones is dropped. */
export class Feed<T> {
  readonly #items: T[] = [];
  #wake: () => void = () => undefined;
  #isEnded = false;
  #makeRoom: (() => void) | undefined;
  #room: Promise<void> = Promise.resolve();

  get isFull(): boolean {
    return this.#items.length >= MAX_WAITING;
  }

  push(item: T): void {
    if (this.#isEnded || this.isFull) return;
    this.#items.push(item);
    if (this.isFull && this.#makeRoom === undefined) {
      this.#room = new Promise((resolve) => {
        this.#makeRoom = () => {
          this.#makeRoom = undefined;
          resolve();
        };
      });
    }
    this.#wake();
  }

  /** Resolves when there is room for more, or the queue has ended. */
  room(): Promise<void> {
    return this.#room;
  }

  end(last?: T): void {
    if (last !== undefined) this.#items.push(last);
    this.#isEnded = true;
    this.#makeRoom?.();
    this.#wake();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, void> {
    for (;;) {
      const item = this.#items.shift();
      if (item !== undefined) {
        if (this.#items.length < MAX_WAITING / 2) this.#makeRoom?.();
        yield item;
      } else if (this.#isEnded) {
        return;
      } else {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
    }
  }
}
