/** A queue that removes its front in constant time, unlike `Array.shift`. */
export class Fifo<T> {
  #items: (T | undefined)[];
  #first = 0;

  constructor(items: readonly T[] = []) {
    this.#items = [...items];
  }

  get length(): number {
    return this.#items.length - this.#first;
  }

  push(item: T): void {
    this.#items.push(item);
  }

  /** Returns the item at an index from the front. */
  at(index: number): T | undefined {
    return index < 0 ? undefined : this.#items[this.#first + index];
  }

  last(): T | undefined {
    return this.at(this.length - 1);
  }

  shift(): T | undefined {
    const item = this.#items[this.#first];
    if (this.length === 0) return undefined;
    // Releases the reference to the removed item.
    this.#items[this.#first] = undefined;
    this.#first += 1;
    // Compacting at half keeps the amortized cost at one move per item.
    if (this.#first > 64 && this.#first * 2 > this.#items.length) {
      this.#items = this.#items.slice(this.#first);
      this.#first = 0;
    }
    return item;
  }

  *[Symbol.iterator](): Generator<T> {
    for (let index = this.#first; index < this.#items.length; index += 1) {
      const item = this.#items[index];
      if (item !== undefined) yield item;
    }
  }
}
