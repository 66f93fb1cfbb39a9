import { Duplex } from "node:stream";
import type { Clock } from "../../host/clock.ts";
import type { FrameSocket } from "../../host/net/frame-socket.ts";
import {
  parseStreamText,
  STREAM_LIMITS,
  streamCloseCodes,
  StreamCommand,
  type StreamEnd,
} from "../../protocol/channel/streams.ts";

export interface StreamLinkOptions {
  readonly socket: FrameSocket;
  readonly clock: Clock;
  /** Receives the other side's control messages. */
  readonly onCommand: (command: StreamCommand) => void;
}

/** Time for a closing handshake before the connection is cut. */
const CLOSE_GRACE_MS = 2000;

/** The node's end of a stream: bytes both ways, with back-pressure. Destroyed when the other side disconnects. */
export class StreamLink extends Duplex {
  readonly #options: StreamLinkOptions;
  /** Monotonic ms of the last frame or pong from the other side. */
  heardAt: number;
  /** Bytes both ways so far. */
  carried = 0;
  /** True while reading is paused because the receiver is slow. */
  isHeldBack = false;
  #isGone = false;

  constructor(options: StreamLinkOptions) {
    super({ readableHighWaterMark: STREAM_LIMITS.sentFrameBytes, writableHighWaterMark: STREAM_LIMITS.sentFrameBytes });
    this.#options = options;
    this.heardAt = options.clock.elapsed();
    this.on("error", () => undefined);
  }

  /** Starts to listen; messages that arrived before are delivered at once. */
  begin(): void {
    const options = this.#options;
    options.socket.listen({
      onHeard: () => {
        this.heardAt = options.clock.elapsed();
      },
      onData: (bytes) => {
        this.carried += bytes.length;
        if (this.#isGone || this.push(bytes)) return;
        this.isHeldBack = true;
        options.socket.pause();
      },
      onText: (text) => this.#hear(text),
      onEnd: () => {
        this.#isGone = true;
        this.destroy();
      },
    });
  }

  /** Sends the result after all output, and closes; resolves once that is done or the other side has disconnected. */
  async finish(end: StreamEnd): Promise<void> {
    if (this.destroyed) return;
    const { socket, clock } = this.#options;
    const isGood = end.type === "exit";
    // Further input is discarded.
    this.unpipe();
    this.resume();
    await new Promise<void>((resolve) => {
      let cancel = (): void => undefined;
      this.once("close", () => {
        cancel();
        resolve();
      });
      this.end(() => {
        socket.send(JSON.stringify(end));
        socket.close(isGood ? streamCloseCodes.ended : streamCloseCodes.failed, isGood ? "" : end.code);
        cancel = clock.after(CLOSE_GRACE_MS, () => this.destroy());
      });
    });
  }

  override _read(): void {
    if (this.#isGone) return;
    this.heardAt = this.#options.clock.elapsed();
    this.isHeldBack = false;
    this.#options.socket.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: () => void): void {
    if (this.#isGone || chunk.length === 0) return done();
    this.carried += chunk.length;
    const { sentFrameBytes } = STREAM_LIMITS;
    for (let at = 0; at < chunk.length; at += sentFrameBytes) {
      const isLast = at + sentFrameBytes >= chunk.length;
      this.#options.socket.send(chunk.subarray(at, at + sentFrameBytes), isLast ? () => done() : undefined);
    }
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    if (!this.#isGone) this.#options.socket.terminate();
    this.#isGone = true;
    done(error);
  }

  #hear(text: string): void {
    if (this.#isGone) return;
    const command = parseStreamText(StreamCommand, text);
    if (command !== undefined) return this.#options.onCommand(command);
    this.#options.socket.close(streamCloseCodes.protocol, "unknown text frame");
    this.destroy();
  }
}
