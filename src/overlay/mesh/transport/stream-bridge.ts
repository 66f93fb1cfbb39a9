import type { Http2Stream } from "node:http2";
import type { Socket } from "node:net";
import type { OverlayReason } from "../../../protocol/overlay/overlay.ts";
import type { RateLimiter } from "../../limits/rate-limiter.ts";
import { flowReason } from "../../dial/reasons.ts";
import type { Editing } from "../../flow/interpreter.ts";
import type { TunnelLimiters } from "./rate-limits.ts";
import { Pump } from "./pump.ts";
import { resetStream } from "./reset.ts";
import { codeOf, reasonOfCode } from "./wire.ts";

export interface StreamBridgeOptions extends Partial<Editing> {
  /** Connected; keeps half-closes and was not read from. */
  readonly socket: Socket;
  /** Answered stream of the flow. */
  readonly stream: Http2Stream;
  /** From the socket, and to it. */
  readonly limiters?: { readonly in: RateLimiter; readonly out: RateLimiter };
  /** Rate limits over all tunnels. */
  readonly tunnels?: TunnelLimiters | undefined;
  /** Returns why the session below the stream ended, once it has. */
  readonly lost: () => OverlayReason | undefined;
  /** Called once; without a reason when both sides closed in order. */
  readonly onEnd: (reason: OverlayReason | undefined) => void;
}

/** A half-closed flow is ended after this idle time, so that dead half-open flows do not accumulate. */
const HALF_CLOSED_IDLE_MS = 60_000;

/** Connects a socket with a stream of a session. Passes half-closes and resets on. */
export class StreamBridge {
  readonly #options: StreamBridgeOptions;
  readonly #up: Pump;
  readonly #down: Pump;
  #closed = 0;
  #isOver = false;
  #progress = -1;
  #idleSince = 0;

  constructor(options: StreamBridgeOptions) {
    const { socket, stream, limiters, tunnels, edits } = options;
    this.#options = options;
    this.#up = new Pump(socket, stream, [limiters?.in, tunnels?.out], edits?.up);
    this.#down = new Pump(stream, socket, [limiters?.out, tunnels?.in], edits?.down);
  }

  /** Bytes read from the socket. */
  get read(): number {
    return this.#up.bytes;
  }

  /** Bytes from the socket that the stream has sent. */
  get bytesUp(): number {
    return this.#up.taken;
  }

  /** Bytes from the stream that the socket has accepted. */
  get bytesDown(): number {
    return this.#down.taken;
  }

  start(): void {
    const { socket, stream } = this.#options;
    stream
      .on("error", () => undefined)
      .on("end", () => {
        if (stream.rstCode === 0 && this.#options.lost() === undefined) socket.end();
      })
      .on("close", this.#onStreamClose);
    socket
      .on("end", () => stream.end())
      .on("error", (error) => this.abort(flowReason(error)))
      .on("close", this.#onClose);
    this.#up.start();
    this.#down.start();
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
    if (progress !== this.#progress || isInUse) {
      this.#progress = progress;
      this.#idleSince = now;
      return;
    }
    const isHalfClosed = socket.readableEnded || stream.readableEnded;
    const limit = isHalfClosed ? Math.min(idleTimeoutMs, HALF_CLOSED_IDLE_MS) : idleTimeoutMs;
    if (now - this.#idleSince >= limit) this.abort("idle");
  }

  readonly #onStreamClose = (): void => {
    const { stream, lost } = this.#options;
    if (stream.rstCode === 0 && stream.readableEnded && stream.writableFinished) return this.#onClose();
    this.abort(lost() ?? reasonOfCode(stream.rstCode));
  };

  readonly #onClose = (): void => {
    this.#closed += 1;
    if (this.#closed === 2) this.#finish(undefined);
  };

  #finish(reason: OverlayReason | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#up.close();
    this.#down.close();
    this.#options.onEnd(reason);
  }
}
