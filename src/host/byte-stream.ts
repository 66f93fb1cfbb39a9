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
      .once("end", () => this.#end(failure))
      .once("close", () => this.#end(failure ?? new Error("the connection was closed")));
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

  resume(): void {
    this.#socket?.resume();
  }

  write(bytes: string | Uint8Array): void {
    this.#socket?.write(bytes);
  }

  destroy(): void {
    this.#socket?.destroy();
  }

  #give(bytes: Buffer, length: number): boolean {
    if (this.#take !== undefined) {
      if (this.#take(bytes, length)) return true;
      // A stream that flows begins to read again by itself.
      this.#socket?.pause();
      return false;
    }
    this.#socket?.destroy(new Error("the other end spoke before it was asked"));
    return false;
  }
}
