import type { Readable } from "node:stream";
import { StringDecoder } from "node:string_decoder";

/** A piece of a tool's output; never splits a character. */
export interface OutputChunk {
  readonly kind: "stdout" | "stderr";
  readonly data: string;
}

const HIGH_WATER_BYTES = 64 * 1024;

/**
 * Joins two pipes into one stream of chunks in order of arrival. Pauses the pipes while the consumer is behind by more than 64
 * KiB. For one consumer; chunks left when it stops are dropped.
 */
export class OutputQueue implements AsyncIterable<OutputChunk> {
  readonly #chunks: { readonly chunk: OutputChunk; readonly bytes: number }[] = [];
  readonly #pipes: Readable[] = [];
  readonly #onAbandoned: () => void;
  #bytes = 0;
  #open = 0;
  #received = 0;
  #failure: Error | undefined;
  #wake: (() => void) | undefined;
  #onClosed: (() => void)[] = [];

  /** `onAbandoned` is called when the consumer stops before the end. */
  constructor(onAbandoned: () => void) {
    this.#onAbandoned = onAbandoned;
  }

  /** Whether the pipes are paused because the consumer is behind. */
  get isPaused(): boolean {
    return this.#bytes > HIGH_WATER_BYTES;
  }

  /** Whether every pipe is closed. */
  get isClosed(): boolean {
    return this.#open === 0;
  }

  /** Total bytes read from the pipes. */
  get receivedBytes(): number {
    return this.#received;
  }

  /** Adds a pipe. Must be called in the same tick as its process starts, or output may be lost. */
  add(kind: OutputChunk["kind"], pipe: Readable, encoding: "utf8" | "latin1" = "utf8"): void {
    const decoder = new StringDecoder(encoding);
    this.#pipes.push(pipe);
    this.#open += 1;
    pipe.on("data", (bytes: Buffer) => {
      this.#received += bytes.length;
      this.#push(kind, decoder.write(bytes), bytes.length);
    });
    // "close" follows every end, error and destruction exactly once.
    pipe.on("error", () => undefined);
    pipe.once("close", () => {
      this.#push(kind, decoder.end(), 0);
      this.#open -= 1;
      if (this.#open === 0) for (const run of this.#onClosed.splice(0)) run();
      this.#notify();
    });
  }

  /** Makes the consumer's next read throw. */
  fail(error: Error): void {
    this.#failure = error;
    this.#notify();
  }

  /** Calls `run` once every pipe is closed. */
  whenClosed(run: () => void): void {
    if (this.#open === 0) run();
    else this.#onClosed.push(run);
  }

  /** Stops reading; queued chunks can still be consumed. */
  destroy(): void {
    for (const pipe of this.#pipes) pipe.destroy();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<OutputChunk, void, undefined> {
    let isComplete = false;
    try {
      for (;;) {
        const next = this.#chunks.shift();
        if (next !== undefined) {
          this.#bytes -= next.bytes;
          if (!this.isPaused) for (const pipe of this.#pipes) pipe.resume();
          yield next.chunk;
        } else if (this.#failure !== undefined) {
          isComplete = true;
          throw this.#failure;
        } else if (this.#open === 0) {
          isComplete = true;
          return;
        } else {
          await new Promise<void>((resolve) => {
            this.#wake = resolve;
          });
        }
      }
    } finally {
      if (!isComplete) {
        this.#onAbandoned();
        this.destroy();
      }
    }
  }

  #push(kind: OutputChunk["kind"], data: string, bytes: number): void {
    if (data === "" && bytes === 0) return;
    this.#bytes += bytes;
    this.#chunks.push({ chunk: { kind, data }, bytes });
    if (this.isPaused) for (const pipe of this.#pipes) pipe.pause();
    this.#notify();
  }

  #notify(): void {
    this.#wake?.();
    this.#wake = undefined;
  }
}
