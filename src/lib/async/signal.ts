/** An observable value. Its listeners are called in the order in which they were added, each time the value is set. */
export class Signal<T> {
  #current: T;
  readonly #listeners = new Set<(value: T) => void>();

  constructor(initial: T) {
    this.#current = initial;
  }

  get current(): T {
    return this.#current;
  }

  /** Sets the value and calls every listener, even if the value is the same. */
  set(value: T): void {
    this.#current = value;
    for (const listener of this.#listeners) listener(value);
  }

  /** Calls `listener` whenever the value is set. Returns a function that removes the listener. */
  changed(listener: (value: T) => void): () => void {
    const own = (value: T): void => listener(value);
    this.#listeners.add(own);
    return () => void this.#listeners.delete(own);
  }
}
