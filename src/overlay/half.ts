import { Socket, type BoundSocket, type OnReadOpts } from "node:net";
import type { Gate, GateUser } from "./gate.ts";

/** What a flow reads with at first, and for as long as it moves little. */
const SMALL_BYTES = 8 * 1024;
const LARGE_BYTES = 128 * 1024;
const GROWTH = 4;
/** So many reads in a row that would have fitted the small buffer give the large one up. */
const SMALL_READS = 64;

const FULL = 1;
const LIMITED = 2;

/**
 * One direction of a flow. It reads into one buffer of its own, over and over, which costs a third less than a fresh one per read, and
 * stops reading while the other side is full or the rate is used up, and only then.
 */
export class Half implements GateUser {
  readonly #gate: Gate;
  #buffer = Buffer.allocUnsafeSlow(SMALL_BYTES);
  #smallReads = 0;
  #stops = 0;
  #from: Socket | undefined;
  #to: Socket | undefined;

  constructor(gate: Gate) {
    this.#gate = gate;
  }

  /** For the constructor of the socket that is to be read from. */
  get onread(): OnReadOpts {
    return { buffer: () => this.#buffer, callback: (size, buffer) => this.#pass(size, buffer) };
  }

  get isAtGate(): boolean {
    return (this.#stops & LIMITED) !== 0;
  }

  /** Connects the sockets; `from` reads through `onread`, unless it could not be made to. */
  link(from: Socket, to: Socket): void {
    this.#from = from;
    this.#to = to;
    from.on("end", () => to.end());
    to.on("drain", () => this.#go(FULL));
  }

  /** Passes on what a socket that allocates for itself has read. */
  linkPlain(from: Socket, to: Socket): void {
    this.link(from, to);
    from.on("data", (chunk: Buffer) => {
      if (!this.#write(chunk)) from.pause();
    });
  }

  resumeFromGate(): void {
    this.#go(LIMITED);
  }

  close(): void {
    this.#gate.leave(this);
  }

  readonly #pass = (size: number, buffer: Uint8Array): boolean => {
    const goesOn = this.#write(size === buffer.length ? buffer : buffer.subarray(0, size));
    // What the kernel has not taken at once is still in the buffer, so that one is given away.
    if (this.#to !== undefined && this.#to.writableLength > 0) this.#buffer = Buffer.allocUnsafeSlow(buffer.length);
    this.#fit(size, buffer.length);
    return goesOn;
  };

  /** Whether more may be read. */
  #write(chunk: Uint8Array): boolean {
    if (this.#to?.write(chunk) === false) this.#stops |= FULL;
    if (!this.#gate.isOpen && !this.#gate.pass(this, chunk.length)) this.#stops |= LIMITED;
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
    else if (capacity > SMALL_BYTES && this.#smallReads > SMALL_READS)
      this.#buffer = Buffer.allocUnsafeSlow(SMALL_BYTES);
  }
}

/**
 * The connection of an accepted socket as a socket that reads through `onread`, or undefined where that cannot be had. Only sockets
 * that one makes oneself can be told where to read to, so the connection moves to one. Reading begins at once.
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
