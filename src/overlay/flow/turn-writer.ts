import type { Writable } from "node:stream";

/** Maximum size of a chunk that is not part of bulk traffic, whose frames are larger. */
const SHORT_BYTES = 2048;

/**
 * Writes to a stream of frames, or what comes out of one: combines the chunks of one turn of the event loop in one
 * write, and counts the bytes that the other side has accepted.
 */
export class TurnWriter {
  readonly #to: Writable;
  #written = 0;
  /** Bytes written and accepted, and the lengths of the pending writes. */
  #done = 0;
  readonly #pending: number[] = [];
  #taken: number | undefined;
  #isInTurn = false;
  #isCorked = false;

  constructor(to: Writable) {
    this.#to = to;
  }

  /** Bytes that the other side has accepted; for an HTTP/2 stream, bytes sent. */
  get taken(): number {
    // A destroyed socket or stream no longer reports its queued bytes.
    return this.#taken ?? (this.#to.destroyed ? this.#done : this.#written - this.#to.writableLength);
  }

  write(chunk: Uint8Array): boolean {
    this.#cork(chunk.length);
    this.#written += chunk.length;
    this.#pending.push(chunk.length);
    return this.#to.write(chunk, this.#onWritten);
  }

  /** Freezes `taken`. */
  close(): void {
    this.#taken = this.taken;
  }

  /** Writes complete in order. */
  readonly #onWritten = (error?: Error | null): void => {
    const length = this.#pending.shift() ?? 0;
    if (error === undefined || error === null) this.#done += length;
  };

  /** A short first chunk is often alone and is sent immediately. */
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
}
