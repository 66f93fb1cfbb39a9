import type { Http2Stream } from "node:http2";
import type { Duplex } from "node:stream";
import type { TwoWayLimiters } from "../limits/rate-limiter.ts";
import { OneWayCopy } from "./one-way-copy.ts";
import { CANCEL, NO_ERROR, resetStream } from "./stream-reset.ts";

/** Bytes queued for sending at which reading stops: stopping after every few frames would cost more than they do. */
const FULL_BYTES = 256 * 1024;

/**
 * Joins two streams without reading their content. Passes half-closes and resets on. Nobody asks how much of it was
 * accepted and both sides bring whole frames, so that it writes without a `TurnWriter`.
 */
export class Splice {
  readonly #sides: readonly [Duplex, Duplex];
  readonly #copies: readonly [OneWayCopy, OneWayCopy];
  readonly #onEnd: () => void;
  readonly #closed = new Set<Duplex>();
  readonly #ending = new Set<Duplex>();

  /** `onEnd` is called once, when both sides are closed. */
  constructor(a: Duplex, b: Duplex, limiters: TwoWayLimiters, onEnd: () => void) {
    this.#sides = [a, b];
    const both = [limiters.in, limiters.out];
    const copyFrom = (side: Duplex): OneWayCopy =>
      new OneWayCopy({ limiters: both, fullBytes: FULL_BYTES, passesEnd: () => codeOf(side) === NO_ERROR });
    this.#copies = [copyFrom(a), copyFrom(b)];
    this.#onEnd = onEnd;
    for (const side of this.#sides) side.on("error", ignore);
  }

  get bytes(): number {
    return this.#copies[0].bytes + this.#copies[1].bytes;
  }

  start(): void {
    const [a, b] = this.#sides;
    const [there, back] = this.#copies;
    there.start(a, b);
    back.start(b, a);
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
    for (const copy of this.#copies) copy.close();
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
