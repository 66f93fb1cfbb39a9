import { Socket, type BoundSocket, type OnReadOpts } from "node:net";
import { SMALL_BYTES, type BufferPool } from "./buffer-pool.ts";
import type { RateLimiter, LimitedReader } from "../limits/rate-limiter.ts";

const LARGE_BYTES = 128 * 1024;
const GROWTH = 4;
/** So many reads in a row that would have fitted the small buffer give the large one up. */
const SMALL_READS = 64;
/** What a socket that allocates for itself reads at most, and how often in a row it must for its flow to be a large one. */
const PLAIN_BYTES = 64 * 1024;
const FULL_READS = 4;

type Edit = (chunk: Uint8Array) => Uint8Array;

const FULL = 1;
const LIMITED = 2;

/**
 * One direction of a flow. It reads into one buffer of its own, over and over, which costs a third less than a fresh one per read, and
 * stops reading while the other side is full or the rate is used up, and only then.
 */
export class OneWayCopy implements LimitedReader {
  readonly #limiter: RateLimiter;
  readonly #pool: BufferPool;
  readonly #edit: Edit | undefined;
  #buffer: Buffer | undefined;
  #smallReads = 0;
  #fullReads = 0;
  #stops = 0;
  #from: Socket | undefined;
  #to: Socket | undefined;

  /** With `edit`, what it gives goes on in place of what was read. */
  constructor(limiter: RateLimiter, pool: BufferPool, edit?: Edit) {
    this.#limiter = limiter;
    this.#pool = pool;
    this.#edit = edit;
  }

  /** For the constructor of the socket that is to be read from. */
  get onread(): OnReadOpts {
    return { buffer: () => (this.#buffer ??= this.#pool.take()), callback: this.#pass };
  }

  get isRateLimited(): boolean {
    return (this.#stops & LIMITED) !== 0;
  }

  /** Connects the sockets for the first time; `from` reads through `onread` or, with `onBulk`, allocates for itself. */
  link(from: Socket, to: Socket, onBulk?: () => void): void {
    this.readFrom(from);
    this.writeTo(to);
    if (onBulk !== undefined) from.on("data", (chunk: Buffer) => this.#passPlain(chunk, from, onBulk));
  }

  /** Goes on with another socket for the same connection, one that reads through `onread`. */
  readFrom(from: Socket): void {
    this.#from = from;
    from.on("end", () => this.#to?.end());
  }

  /** Likewise for the side that is written to. */
  writeTo(to: Socket): void {
    this.#to = to;
    to.on("drain", () => this.#go(FULL));
  }

  resumeReading(): void {
    this.#go(LIMITED);
  }

  /** The sockets are closed, or are about to be in this turn. */
  close(): void {
    this.#limiter.leave(this);
    if (this.#buffer !== undefined) this.#pool.give(this.#buffer);
    this.#buffer = undefined;
  }

  readonly #pass = (size: number, buffer: Uint8Array): boolean => {
    const goesOn = this.#write(size === buffer.length ? buffer : buffer.subarray(0, size));
    // What the kernel has not taken at once is still in the buffer, so that one is given away.
    if (this.#to !== undefined && this.#to.writableLength > 0) this.#buffer = Buffer.allocUnsafeSlow(buffer.length);
    this.#fit(size, buffer.length);
    return goesOn;
  };

  #passPlain(chunk: Buffer, from: Socket, onBulk: () => void): void {
    if (!this.#write(chunk)) from.pause();
    else if (chunk.length < PLAIN_BYTES) this.#fullReads = 0;
    else if ((this.#fullReads += 1) >= FULL_READS) onBulk();
  }

  /** Whether more may be read. */
  #write(chunk: Uint8Array): boolean {
    const edited = this.#edit === undefined ? chunk : this.#edit(chunk);
    if (edited.length > 0 && this.#to?.write(edited) === false) this.#stops |= FULL;
    if (!this.#limiter.isOpen && !this.#limiter.pass(this, chunk.length)) this.#stops |= LIMITED;
    return this.#stops === 0;
  }

  #go(why: number): void {
    if (this.#stops === 0) return;
    this.#stops &= ~why;
    if (this.#stops === 0) this.#from?.resume();
  }

  #fit(size: number, capacity: number): void {
    if (size > SMALL_BYTES) this.#smallReads = 0;
    else this.#smallReads += 1;
    if (size === capacity && capacity < LARGE_BYTES) this.#buffer = Buffer.allocUnsafeSlow(capacity * GROWTH);
    else if (capacity > SMALL_BYTES && this.#smallReads > SMALL_READS) this.#buffer = this.#pool.take();
  }
}

/**
 * The connection of an accepted socket as a socket that reads through `onread`, or undefined where that cannot be had. Only sockets
 * that one makes oneself can be told where to read to, so the connection moves to one; the accepted one must have nothing to write.
 */
export function withOnRead(accepted: Socket, onread: OnReadOpts): Socket | undefined {
  const handle: unknown = Reflect.get(accepted, "_handle");
  if (!isHandle(handle)) return undefined;
  Reflect.set(accepted, "_handle", null);
  return new Socket({ handle, allowHalfOpen: true, onread });
}

/** The constructor takes a connected handle as well as a bound one, but only the latter has a public type. */
function isHandle(value: unknown): value is BoundSocket {
  return typeof value === "object" && value !== null && "useUserBuffer" in value && "readStart" in value;
}
