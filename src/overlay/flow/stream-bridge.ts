import type { Http2Stream } from "node:http2";
import type { Socket } from "node:net";
import type { OverlayReason } from "../../protocol/overlay/overlay.ts";
import { flowReason } from "../dial/reasons.ts";
import type { TwoWayLimiters } from "../limits/rate-limiter.ts";
import { IdleCheck } from "./idle-check.ts";
import type { Editing } from "./interpreter.ts";
import { OneWayCopy } from "./one-way-copy.ts";
import { codeOf, NO_ERROR, reasonOfCode, resetStream } from "./stream-reset.ts";
import { TurnWriter } from "./turn-writer.ts";

export interface StreamBridgeOptions extends Partial<Editing> {
  /** Connected; keeps half-closes and was not read from. */
  readonly socket: Socket;
  /** Answered stream of the flow. */
  readonly stream: Http2Stream;
  /** From the socket, and to it. */
  readonly limiters?: TwoWayLimiters;
  /** Rate limits over all tunnels. */
  readonly tunnels: TwoWayLimiters;
  /** Returns why the session below the stream ended, once it has. */
  readonly lost: () => OverlayReason | undefined;
  /** Called once; without a reason when both sides closed in order. */
  readonly onEnd: (reason: OverlayReason | undefined) => void;
}

/**
 * Connects a socket with a stream of a session. Passes half-closes and resets on. A stream frames what it sends and ends
 * with a code, which two sockets (`TcpFlow`) do not have.
 */
export class StreamBridge {
  readonly #options: StreamBridgeOptions;
  readonly #up: OneWayCopy;
  readonly #down: OneWayCopy;
  readonly #toStream: TurnWriter;
  readonly #toSocket: TurnWriter;
  readonly #idle = new IdleCheck();
  #closed = 0;
  #isOver = false;

  constructor(options: StreamBridgeOptions) {
    const { socket, stream, limiters, tunnels, edits, lost } = options;
    this.#options = options;
    this.#up = new OneWayCopy({
      limiters: [...(limiters === undefined ? [] : [limiters.in]), tunnels.out],
      edit: edits?.up,
    });
    this.#down = new OneWayCopy({
      limiters: [...(limiters === undefined ? [] : [limiters.out]), tunnels.in],
      edit: edits?.down,
      passesEnd: () => stream.rstCode === NO_ERROR && lost() === undefined,
    });
    this.#toStream = new TurnWriter(stream);
    this.#toSocket = new TurnWriter(socket);
  }

  /** Bytes read from the socket. */
  get read(): number {
    return this.#up.bytes;
  }

  /** Bytes from the socket that the stream has sent. */
  get bytesUp(): number {
    return this.#toStream.taken;
  }

  /** Bytes from the stream that the socket has accepted. */
  get bytesDown(): number {
    return this.#toSocket.taken;
  }

  start(): void {
    const { socket, stream } = this.#options;
    stream.on("error", () => undefined).on("close", this.#onStreamClose);
    socket.on("error", (error) => this.abort(flowReason(error))).on("close", this.#onClose);
    this.#up.start(socket, stream, this.#toStream);
    this.#down.start(stream, socket, this.#toSocket);
    if (stream.destroyed) this.#onStreamClose();
    else socket.resume();
  }

  /** Resets both sides. */
  abort(reason: OverlayReason): void {
    if (this.#isOver) return;
    const { socket, stream } = this.#options;
    this.#finish(reason);
    socket.resetAndDestroy();
    resetStream(stream, codeOf(reason));
  }

  /** Ends the flow if it was idle for too long, longer than 60 s if it is half-closed. */
  sweep(now: number, idleTimeoutMs: number): void {
    const { socket, stream } = this.#options;
    const progress = this.#up.bytes + this.#down.bytes - socket.writableLength - stream.writableLength;
    const isInUse = this.#up.isRateLimited || this.#down.isRateLimited || this.#options.isBusy?.() === true;
    const isHalfClosed = socket.readableEnded || stream.readableEnded;
    if (this.#idle.isOver(progress, { isInUse, isHalfClosed }, now, idleTimeoutMs)) this.abort("idle");
  }

  readonly #onStreamClose = (): void => {
    const { stream, lost } = this.#options;
    if (stream.rstCode === NO_ERROR && stream.readableEnded && stream.writableFinished) return this.#onClose();
    this.abort(lost() ?? reasonOfCode(stream.rstCode));
  };

  readonly #onClose = (): void => {
    this.#closed += 1;
    if (this.#closed === 2) this.#finish(undefined);
  };

  #finish(reason: OverlayReason | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#toStream.close();
    this.#toSocket.close();
    this.#up.close();
    this.#down.close();
    this.#options.onEnd(reason);
  }
}
