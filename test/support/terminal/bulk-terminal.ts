import { Duplex } from "node:stream";
import type { Terminal } from "../../../src/host/engine/engine.ts";

/** A terminal without a program: sends bytes as fast as they are read, and counts those received. */
export class Bulk implements Terminal {
  readonly stream: Duplex;
  given = 0;
  taken = 0;
  #waiting: (() => void) | undefined;
  #isHeld = false;

  /** With 0 bytes it stays open until killed. */
  constructor(total: number) {
    const piece = Buffer.alloc(64 * 1024, 0x78);
    this.stream = new Duplex({
      read: () => {
        if (total === 0) return;
        if (this.given >= total) {
          this.stream.push(null);
          return;
        }
        const next = piece.subarray(0, total - this.given);
        this.given += next.length;
        this.stream.push(next);
      },
      write: (chunk: Buffer, _encoding, done) => {
        this.taken += chunk.length;
        if (this.#isHeld) this.#waiting = done;
        else done();
      },
    });
  }

  hold(): void {
    this.#isHeld = true;
  }

  release(): void {
    this.#isHeld = false;
    this.#waiting?.();
  }

  resize(): Promise<void> {
    return Promise.resolve();
  }

  exitCode(): Promise<number | undefined> {
    return Promise.resolve(0);
  }

  kill(): Promise<void> {
    this.stream.destroy();
    return Promise.resolve();
  }
}
