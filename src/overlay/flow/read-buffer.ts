import { Socket, type BoundSocket, type OnReadOpts } from "node:net";
import type { OneWayCopy } from "./one-way-copy.ts";

/** Size of the buffer that a flow starts with and keeps while it moves little; most of an idle flow's memory is this buffer. */
const SMALL_BYTES = 2 * 1024;
const LARGE_BYTES = 128 * 1024;
const GROWTH = 4;
/** Consecutive small reads after which the large buffer is replaced by a small one. */
const SMALL_READS = 64;
const MAX_KEPT = 512;

/** Reuses the small buffers of ended flows: allocating them is a large part of the cost of a short flow. */
export interface BufferPool {
  take(): Buffer;
  /** Returns a buffer that nothing reads into or writes from any more. */
  give(buffer: Buffer): void;
}

export function bufferPool(): BufferPool {
  const kept: Buffer[] = [];
  return {
    take: () => kept.pop() ?? Buffer.allocUnsafeSlow(SMALL_BYTES),
    give(buffer) {
      if (buffer.length === SMALL_BYTES && kept.length < MAX_KEPT) kept.push(buffer);
    },
  };
}

/**
 * Reads a TCP socket for a copy into one reused buffer, which costs a third less than a new one per read. Only a socket
 * created with `onread` can do this; HTTP/2 streams and accepted sockets emit chunks of their own.
 */
export class ReadBuffer {
  readonly #copy: OneWayCopy;
  readonly #pool: BufferPool;
  #buffer: Buffer | undefined;
  #smallReads = 0;

  constructor(copy: OneWayCopy, pool: BufferPool) {
    this.#copy = copy;
    this.#pool = pool;
  }

  /** Read options for the socket. */
  get onread(): OnReadOpts {
    return {
      buffer: () => (this.#buffer ??= this.#pool.take()),
      callback: (size, buffer) => this.#read(size, buffer),
    };
  }

  /** Returns the buffer; the socket is closed, or will be in this turn. */
  close(): void {
    if (this.#buffer !== undefined) this.#pool.give(this.#buffer);
    this.#buffer = undefined;
  }

  #read(size: number, buffer: Uint8Array): boolean {
    const goesOn = this.#copy.pass(size === buffer.length ? buffer : buffer.subarray(0, size));
    // Bytes that the kernel has not taken are still in the buffer, so the buffer is replaced.
    if (this.#copy.queuedBytes > 0) this.#buffer = Buffer.allocUnsafeSlow(buffer.length);
    this.#fit(size, buffer.length);
    return goesOn;
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
