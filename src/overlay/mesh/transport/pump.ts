import type { Duplex } from "node:stream";
import type { RateLimiter, LimitedReader } from "../../limits/rate-limiter.ts";

type Edit = (chunk: Uint8Array) => Uint8Array;

const FULL = 1;
const LIMITED = 2;

/** Maximum size of a chunk that is not part of bulk traffic, whose frames are larger. */
const SHORT_BYTES = 2048;

/** A rate limiter that a copy passes, and its bit in the mask of reasons to wait. */
interface Turn {
  readonly limiter: RateLimiter;
  readonly user: LimitedReader;
  readonly bit: number;
}

/** Copies one direction between a socket and a stream. Stops reading while the other side is full or a rate is used up. */
export class Pump {
  /** Bytes read so far. */
  bytes = 0;
  #written = 0;
  /** Bytes written and accepted, and the lengths of the pending writes. */
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

  /** `edit` replaces the bytes that are passed on. */
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

  /** Bytes that the other side has accepted; for a stream, bytes sent. */
  get taken(): number {
    // A destroyed socket or stream no longer reports its queued bytes.
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

  /** Writes complete in order. */
  readonly #onWritten = (error?: Error | null): void => {
    const length = this.#pending.shift() ?? 0;
    if (error === undefined || error === null) this.#done += length;
  };

  /** Combines the frames of one turn of the event loop in one write. A short first frame is often alone and is sent immediately. */
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
