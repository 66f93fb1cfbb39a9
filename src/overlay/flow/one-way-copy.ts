import type { Readable, Writable } from "node:stream";
import type { LimitedReader, RateLimiter } from "../limits/rate-limiter.ts";

export interface OneWayCopyOptions {
  /** Each counts every byte read; a used-up one stops reading. */
  readonly limiters: readonly RateLimiter[];
  /** Replaces the bytes that are passed on. */
  readonly edit?: ((chunk: Uint8Array) => Uint8Array) | undefined;
  /** Bytes queued for sending at which reading stops; by default the high-water mark of the stream written to. */
  readonly fullBytes?: number;
  /** Reports whether the end is passed on. A reset stream ends too, but the other side must not take its bytes as complete. */
  readonly passesEnd?: () => boolean;
}

/** Accepts the bytes of a copy; false means that it is full until the stream behind it drains. */
interface Sink {
  write(chunk: Uint8Array): boolean;
}

const FULL = 1;
/** Bit of the first limiter; each further one has the next bit. */
const LIMITED = 2;

/** Copies one direction of a flow. Stops reading while the other side is full or a rate is used up. */
export class OneWayCopy implements LimitedReader {
  /** Bytes read so far. */
  bytes = 0;
  readonly #options: OneWayCopyOptions;
  #from: Readable | undefined;
  #to: Writable | undefined;
  #sink: Sink | undefined;
  /** Reasons not to read. */
  #stops = 0;
  #isOver = false;

  constructor(options: OneWayCopyOptions) {
    this.#options = options;
  }

  get isRateLimited(): boolean {
    return (this.#stops & ~FULL) !== 0;
  }

  /** Bytes that wait to be sent. */
  get queuedBytes(): number {
    return this.#to?.writableLength ?? 0;
  }

  /** Copies everything that `from` emits to `to`, through `sink` if there is one. */
  start(from: Readable, to: Writable, sink?: Sink): void {
    this.writeTo(to, sink);
    this.readFrom(from);
    from.on("data", (chunk: Buffer) => {
      if (!this.pass(chunk)) from.pause();
    });
  }

  /** Continues with another source, whose owner gives its bytes to `pass`. */
  readFrom(from: Readable): void {
    this.#from = from;
    from.on("end", () => {
      if (this.#options.passesEnd?.() !== false) this.#to?.end();
    });
  }

  /** Continues with another stream to write to. */
  writeTo(to: Writable, sink: Sink = to): void {
    this.#to = to;
    this.#sink = sink;
    to.on("drain", () => this.#go(FULL));
  }

  /** Passes a chunk on; reports whether more may be read. */
  pass(chunk: Uint8Array): boolean {
    if (this.#isOver) return false;
    this.bytes += chunk.length;
    const { limiters, edit, fullBytes = 0 } = this.#options;
    const edited = edit === undefined ? chunk : edit(chunk);
    const isFull = edited.length > 0 && this.#sink?.write(edited) === false;
    if (isFull && this.queuedBytes >= fullBytes) this.#stops |= FULL;
    for (let i = 0; i < limiters.length; i += 1) {
      const limiter = limiters[i];
      if (limiter?.isOpen === false && !limiter.pass(this, chunk.length)) this.#stops |= LIMITED << i;
    }
    return this.#stops === 0;
  }

  resumeReading(limiter: RateLimiter): void {
    this.#go(LIMITED << this.#options.limiters.indexOf(limiter));
  }

  /** Ignores what is still read. */
  close(): void {
    this.#isOver = true;
    for (const limiter of this.#options.limiters) limiter.leave(this);
  }

  #go(why: number): void {
    if (this.#stops === 0) return;
    this.#stops &= ~why;
    if (this.#stops === 0 && !this.#isOver) this.#from?.resume();
  }
}
