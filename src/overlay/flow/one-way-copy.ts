import { Socket, type BoundSocket, type OnReadOpts } from "node:net";
import { SMALL_BYTES, type BufferPool } from "./buffer-pool.ts";
import type { RateLimiter, LimitedReader } from "../limits/rate-limiter.ts";

const LARGE_BYTES = 128 * 1024;
const GROWTH = 4;
/** Consecutive small reads after which the large buffer is replaced by a small one. */
const SMALL_READS = 64;
/** Maximum read of a socket without `onread`, and how many consecutive full reads make a flow a bulk flow. */
const PLAIN_BYTES = 64 * 1024;
const FULL_READS = 4;

type Edit = (chunk: Uint8Array) => Uint8Array;

const FULL = 1;
const LIMITED = 2;

/**
 * Copies one direction of a flow. Reads into one reused buffer, which costs a third less than a new one per read, and
 * stops reading while the other side is full or the rate is used up.
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

  /** `edit` replaces the bytes that are passed on. */
  constructor(limiter: RateLimiter, pool: BufferPool, edit?: Edit) {
    this.#limiter = limiter;
    this.#pool = pool;
    this.#edit = edit;
  }

  /** Read options for the socket to read from. */
  get onread(): OnReadOpts {
    return { buffer: () => (this.#buffer ??= this.#pool.take()), callback: this.#pass };
  }

  get isRateLimited(): boolean {
    return (this.#stops & LIMITED) !== 0;
  }

  /** Connects the sockets; `from` reads through `onread`, or allocates its buffers itself when `onBulk` is given. */
  link(from: Socket, to: Socket, onBulk?: () => void): void {
    this.readFrom(from);
    this.writeTo(to);
    if (onBulk !== undefined) from.on("data", (chunk: Buffer) => this.#passPlain(chunk, from, onBulk));
  }

  /** Continues with another socket of the same connection, one that reads through `onread`. */
  readFrom(from: Socket): void {
    this.#from = from;
    from.on("end", () => this.#to?.end());
  }

  /** Continues with another socket to write to. */
  writeTo(to: Socket): void {
    this.#to = to;
    to.on("drain", () => this.#go(FULL));
  }

  resumeReading(): void {
    this.#go(LIMITED);
  }

  /** Returns the buffer; the sockets are closed, or will be in this turn. */
  close(): void {
    this.#limiter.leave(this);
    if (this.#buffer !== undefined) this.#pool.give(this.#buffer);
    this.#buffer = undefined;
  }

  readonly #pass = (size: number, buffer: Uint8Array): boolean => {
    const goesOn = this.#write(size === buffer.length ? buffer : buffer.subarray(0, size));
    // Bytes that the kernel has not taken are still in the buffer, so the buffer is replaced.
    if (this.#to !== undefined && this.#to.writableLength > 0) this.#buffer = Buffer.allocUnsafeSlow(buffer.length);
    this.#fit(size, buffer.length);
    return goesOn;
  };

  #passPlain(chunk: Buffer, from: Socket, onBulk: () => void): void {
    if (!this.#write(chunk)) from.pause();
    else if (chunk.length < PLAIN_BYTES) this.#fullReads = 0;
    else if ((this.#fullReads += 1) >= FULL_READS) onBulk();
  }

  /** Reports whether more may be read. */
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
 * Moves the connection of an accepted socket to a socket that reads through `onread`; undefined if that is impossible.
 * Only a socket created with `onread` reads into a given buffer. The accepted socket must have nothing to write.
 */
export function withOnRead(accepted: Socket, onread: OnReadOpts): Socket | undefined {
  const handle: unknown = Reflect.get(accepted, "_handle");
  if (!isHandle(handle)) return undefined;
  Reflect.set(accepted, "_handle", null);
  return new Socket({ handle, allowHalfOpen: true, onread });
}

/** The constructor accepts a connected handle too, but only a bound one has a public type. */
function isHandle(value: unknown): value is BoundSocket {
  return typeof value === "object" && value !== null && "useUserBuffer" in value && "readStart" in value;
}
