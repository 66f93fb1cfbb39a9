/** A queue whose front is taken in constant time, however long it is; shifting an array moves everything behind. */
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

  /** The item that many places behind the front. */
  at(index: number): T | undefined {
    return index < 0 ? undefined : this.#items[this.#first + index];
  }

  last(): T | undefined {
    return this.at(this.length - 1);
  }

  shift(): T | undefined {
    const item = this.#items[this.#first];
    if (this.length === 0) return undefined;
    // What was taken must not be held here.
    this.#items[this.#first] = undefined;
    this.#first += 1;
    // Moving half of the places at a time costs each item one move.
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
