import type { OnReadOpts, Socket } from "node:net";

/** Takes bytes that are valid during the call only; false pauses the stream. */
export type TakeBytes = (bytes: Buffer, length: number) => boolean;

/**
 * What a connection reads, into one buffer that is used again and again: a buffer of its own for every read costs more than the read.
 * A stream begins paused; bytes that come before they are asked for make it fail.
 */
export class ByteStream {
  readonly onread: OnReadOpts;
  #take: TakeBytes | undefined;
  /** A connection with TLS hands over all that it has decrypted, paused or not: what comes then waits here. */
  #held: Buffer[] = [];
  #isPaused = true;
  /** Tells the end, which comes after what is held. */
  #tellEnd: (() => void) | undefined;
  #socket: Socket | undefined;
  #end: (failure: Error | undefined) => void = () => undefined;
  /** Resolves when the other end has ended: to the error that it ended with, or to undefined. */
  readonly ended = new Promise<Error | undefined>((resolve) => (this.#end = resolve));

  constructor(bufferBytes: number) {
    const buffer = Buffer.allocUnsafeSlow(bufferBytes);
    this.onread = { buffer, callback: (length) => this.#give(buffer, length) };
  }

  /** Reads from a connected socket that was made with `onread`, or without: then through the socket's own buffers. */
  attach(socket: Socket, hasOnread: boolean): this {
    this.#socket = socket;
    let failure: Error | undefined;
    socket
      .on("error", (error) => (failure = error))
      .once("end", () => this.#endAfterHeld(() => this.#end(failure)))
      .once("close", () => this.#endAfterHeld(() => this.#end(failure ?? new Error("the connection was closed"))));
    if (!hasOnread) socket.on("data", (bytes: Buffer) => void this.#give(bytes, bytes.length));
    socket.pause();
    return this;
  }

  /** Says who takes the bytes from now on. */
  expect(take: TakeBytes): void {
    this.#take = take;
  }

  /** Says who takes the bytes from now on, and reads on. */
  read(take: TakeBytes): void {
    this.expect(take);
    this.resume();
  }

  /** Hands over what was held, and reads on unless that pauses the stream again. */
  resume(): void {
    this.#isPaused = false;
    while (this.#held.length > 0 && !this.#isPaused) {
      const bytes = this.#held.shift() ?? Buffer.alloc(0);
      this.#isPaused = !this.#take?.(bytes, bytes.length);
    }
    if (this.#isPaused) return;
    this.#socket?.resume();
    this.#tellEnd?.();
  }

  #endAfterHeld(tell: () => void): void {
    this.#tellEnd ??= tell;
    if (this.#held.length === 0) this.#tellEnd();
  }

  write(bytes: string | Uint8Array): void {
    this.#socket?.write(bytes);
  }

  destroy(): void {
    this.#socket?.destroy();
  }

  #give(bytes: Buffer, length: number): boolean {
    if (this.#take === undefined) {
      this.#socket?.destroy(new Error("the other end spoke before it was asked"));
      return false;
    }
    if (this.#isPaused) this.#held.push(Buffer.from(bytes.subarray(0, length)));
    else this.#isPaused = !this.#take(bytes, length);
    // A stream that flows begins to read again by itself.
    if (this.#isPaused) this.#socket?.pause();
    return !this.#isPaused;
  }
}
