import type { OnReadOpts, Socket } from "node:net";

/** Receives bytes that are valid during the call only; false pauses the stream. */
export type TakeBytes = (bytes: Buffer, length: number) => boolean;

/**
 * Reads a connection into one reused buffer: allocating a buffer per read costs more than the read. A stream starts
 * paused; bytes that arrive before they are requested make it fail.
 */
export class ByteStream {
  readonly onread: OnReadOpts;
  #take: TakeBytes | undefined;
  /** TLS delivers everything that it has decrypted, paused or not; while paused, it is held here. */
  #held: Buffer[] = [];
  #isPaused = true;
  /** Reports the end after the held bytes. */
  #tellEnd: (() => void) | undefined;
  #socket: Socket | undefined;
  #end: (failure: Error | undefined) => void = () => undefined;
  /** Resolves when the other end has closed: to an error, or to undefined after an orderly end. */
  readonly ended = new Promise<Error | undefined>((resolve) => (this.#end = resolve));

  constructor(bufferBytes: number) {
    const buffer = Buffer.allocUnsafeSlow(bufferBytes);
    this.onread = { buffer, callback: (length) => this.#give(buffer, length) };
  }

  /** Reads from a connected socket. Without `hasOnread` the socket allocates its buffers itself. */
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

  /** Sets the receiver of bytes. */
  expect(take: TakeBytes): void {
    this.#take = take;
  }

  /** Sets the receiver of bytes and resumes reading. */
  read(take: TakeBytes): void {
    this.expect(take);
    this.resume();
  }

  /** Delivers held bytes, and resumes reading unless the receiver pauses again. */
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
      this.#socket?.destroy(new Error("the other end sent data before a request"));
      return false;
    }
    if (this.#isPaused) this.#held.push(Buffer.from(bytes.subarray(0, length)));
    else this.#isPaused = !this.#take(bytes, length);
    // A flowing stream would resume reading by itself.
    if (this.#isPaused) this.#socket?.pause();
    return !this.#isPaused;
  }
}
