import type { Http2Stream } from "node:http2";
import type { Duplex } from "node:stream";
import type { LimitedReader } from "../../limits/rate-limiter.ts";
import type { MeshLimiters } from "./rate-limits.ts";
import { resetStream } from "./reset.ts";
import { CANCEL, NO_ERROR } from "./stream-codes.ts";

/** Bytes queued for sending at which reading stops: stopping after every few frames would cost more than they do. */
const FULL_BYTES = 256 * 1024;

const FULL = 1;
const LIMITED_IN = 2;
const LIMITED_OUT = 4;

/** Copies one direction of a splice. Stops reading while the other side is full or a rate is used up. */
class Direction {
  bytes = 0;
  readonly #from: Duplex;
  readonly #to: Duplex;
  readonly #limiters: MeshLimiters;
  readonly #atIn: LimitedReader = { resumeReading: () => this.#go(LIMITED_IN) };
  readonly #atOut: LimitedReader = { resumeReading: () => this.#go(LIMITED_OUT) };
  #stops = 0;

  constructor(from: Duplex, to: Duplex, limiters: MeshLimiters) {
    this.#from = from;
    this.#to = to;
    this.#limiters = limiters;
  }

  start(): void {
    this.#to.on("drain", () => this.#go(FULL));
    this.#from.on("data", this.#pass).on("end", () => {
      // A reset stream ends too, but the other side must not take its bytes as complete.
      if (codeOf(this.#from) === NO_ERROR) this.#to.end();
    });
  }

  close(): void {
    this.#limiters.in.leave(this.#atIn);
    this.#limiters.out.leave(this.#atOut);
  }

  readonly #pass = (chunk: Buffer): void => {
    this.bytes += chunk.length;
    if (!this.#to.write(chunk) && this.#to.writableLength >= FULL_BYTES) this.#stops |= FULL;
    const limiters = this.#limiters;
    if (!limiters.in.isOpen && !limiters.in.pass(this.#atIn, chunk.length)) this.#stops |= LIMITED_IN;
    if (!limiters.out.isOpen && !limiters.out.pass(this.#atOut, chunk.length)) this.#stops |= LIMITED_OUT;
    if (this.#stops !== 0) this.#from.pause();
  };

  #go(why: number): void {
    if (this.#stops === 0) return;
    this.#stops &= ~why;
    if (this.#stops === 0) this.#from.resume();
  }
}

/** Joins two streams without reading their content. Passes half-closes and resets on. */
export class Splice {
  readonly #sides: readonly [Duplex, Duplex];
  readonly #directions: readonly [Direction, Direction];
  readonly #onEnd: () => void;
  readonly #closed = new Set<Duplex>();
  readonly #ending = new Set<Duplex>();

  /** `onEnd` is called once, when both sides are closed. */
  constructor(a: Duplex, b: Duplex, limiters: MeshLimiters, onEnd: () => void) {
    this.#sides = [a, b];
    this.#directions = [new Direction(a, b, limiters), new Direction(b, a, limiters)];
    this.#onEnd = onEnd;
    for (const side of this.#sides) side.on("error", ignore);
  }

  get bytes(): number {
    return this.#directions[0].bytes + this.#directions[1].bytes;
  }

  start(): void {
    const [a, b] = this.#sides;
    for (const direction of this.#directions) direction.start();
    a.on("aborted", () => this.#aborted(a, b)).on("close", () => this.#sideClosed(a, b));
    b.on("aborted", () => this.#aborted(b, a)).on("close", () => this.#sideClosed(b, a));
    // Either side may have closed while the other was awaited.
    if (a.destroyed) this.#sideClosed(a, b);
    if (b.destroyed) this.#sideClosed(b, a);
  }

  /** Resets both sides. */
  abort(code = CANCEL): void {
    for (const side of this.#sides) this.#end(side, code);
  }

  /** Passes a reset on immediately; bytes still queued are useless. */
  #aborted(side: Duplex, other: Duplex): void {
    // A side that is reset from here emits `aborted` as well and must still send its reset.
    if (this.#ending.has(side)) return;
    this.#end(other, codeOf(side));
    side.destroy();
  }

  #sideClosed(side: Duplex, other: Duplex): void {
    if (this.#closed.has(side)) return;
    const isInOrder = codeOf(side) === NO_ERROR && side.readableEnded && side.writableFinished;
    if (!isInOrder) this.#end(other, codeOf(side));
    if (this.#closed.add(side).size < 2) return;
    for (const direction of this.#directions) direction.close();
    this.#onEnd();
  }

  #end(side: Duplex, code: number): void {
    this.#ending.add(side);
    if (isHttp2(side)) resetStream(side, code === NO_ERROR ? CANCEL : code);
    else side.destroy();
  }
}

function codeOf(side: Duplex): number {
  return isHttp2(side) ? side.rstCode : NO_ERROR;
}

function isHttp2(side: Duplex): side is Http2Stream {
  return "rstCode" in side;
}

function ignore(): void {
  return undefined;
}
