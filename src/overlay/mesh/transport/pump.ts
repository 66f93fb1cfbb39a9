import type { Duplex } from "node:stream";
import type { RateLimiter, LimitedReader } from "../../limits/rate-limiter.ts";

type Edit = (chunk: Uint8Array) => Uint8Array;

const FULL = 1;
const LIMITED = 2;

/** What is no part of bulk: its frames are larger. */
const SHORT_BYTES = 2048;

/** A gate that is passed through, and the bit that stands for waiting at it. */
interface Turn {
  readonly limiter: RateLimiter;
  readonly user: LimitedReader;
  readonly bit: number;
}

/** One direction between a socket and a stream: it stops reading while the other side is full or a rate is used up, and only then. */
export class Pump {
  /** What was read so far. */
  bytes = 0;
  #written = 0;
  /** Bytes that were written and taken, and the lengths of the writes that were not. */
  #done = 0;
  readonly #pending: number[] = [];
  #taken: number | undefined;
  readonly #from: Duplex;
  readonly #to: Duplex;
  readonly #turns: readonly Turn[];
  readonly #edit: Edit | undefined;
  #stops = 0;
  #isInTurn = false;
  #isCorked = false;
  #isOver = false;

  /** With `edit`, what it gives goes on in place of what was read. */
  constructor(from: Duplex, to: Duplex, limiters: readonly (RateLimiter | undefined)[], edit?: Edit) {
    this.#from = from;
    this.#to = to;
    this.#edit = edit;
    this.#turns = limiters
      .filter((limiter) => limiter !== undefined)
      .map((limiter, i) => ({ limiter, bit: LIMITED << i, user: { resumeReading: () => this.#go(LIMITED << i) } }));
  }

  get isRateLimited(): boolean {
    return (this.#stops & ~FULL) !== 0;
  }

  /** Bytes that the other side has taken so far; for a stream, bytes sent. */
  get taken(): number {
    // Whatever waits in a socket or stream is not counted as waiting any more once that is destroyed.
    return this.#taken ?? (this.#to.destroyed ? this.#done : this.#written - this.#to.writableLength);
  }

  start(): void {
    this.#to.on("drain", () => this.#go(FULL));
    this.#from.on("data", this.#pass);
  }

  close(): void {
    this.#taken = this.taken;
    this.#isOver = true;
    for (const { limiter, user } of this.#turns) limiter.leave(user);
  }

  readonly #pass = (chunk: Buffer): void => {
    if (this.#isOver) return;
    this.bytes += chunk.length;
    this.#cork(chunk.length);
    const edited = this.#edit === undefined ? chunk : this.#edit(chunk);
    if (edited.length > 0 && !this.#write(edited)) this.#stops |= FULL;
    for (const { limiter, user, bit } of this.#turns) {
      if (!limiter.isOpen && !limiter.pass(user, chunk.length)) this.#stops |= bit;
    }
    if (this.#stops !== 0) this.#from.pause();
  };

  #write(chunk: Uint8Array): boolean {
    this.#written += chunk.length;
    this.#pending.push(chunk.length);
    return this.#to.write(chunk, this.#onWritten);
  }

  /** Writes are done with in their order. */
  readonly #onWritten = (error?: Error | null): void => {
    const length = this.#pending.shift() ?? 0;
    if (error === undefined || error === null) this.#done += length;
  };

  /** What arrives in one turn, frame by frame, leaves in one call; but a short first frame is often alone, and goes at once. */
  #cork(bytes: number): void {
    if (this.#isCorked) return;
    if (!this.#isInTurn) {
      this.#isInTurn = true;
      process.nextTick(this.#endTurn);
      if (bytes <= SHORT_BYTES) return;
    }
    this.#isCorked = true;
    this.#to.cork();
  }

  readonly #endTurn = (): void => {
    this.#isInTurn = false;
    if (!this.#isCorked) return;
    this.#isCorked = false;
    this.#to.uncork();
  };

  #go(why: number): void {
    if (this.#stops === 0) return;
    this.#stops &= ~why;
    if (this.#stops === 0 && !this.#isOver) this.#from.resume();
  }
}
