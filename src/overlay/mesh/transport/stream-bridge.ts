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
  /** Connected, half-open capable, and not yet read from. */
  readonly socket: Socket;
  /** The answered stream of the flow. */
  readonly stream: Http2Stream;
  /** From the socket, and to it. */
  readonly limiters?: { readonly in: RateLimiter; readonly out: RateLimiter };
  /** The node's limits over all tunnels. */
  readonly tunnels?: TunnelLimiters | undefined;
  /** Why the session below the stream has ended, once it has. */
  readonly lost: () => OverlayReason | undefined;
  /** Told once: without a reason when both sides closed in order. */
  readonly onEnd: (reason: OverlayReason | undefined) => void;
}

/** A half-closed flow in which nothing moves is ended after this, lest dead halves pile up. */
const HALF_CLOSED_IDLE_MS = 60_000;

/** A socket and a stream of a session, joined: half-closes pass through, and so do resets, as resets. */
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

  /** Bytes that came by the stream and that the socket has taken. */
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

  /** Ends both sides by a reset. */
  abort(reason: OverlayReason): void {
    if (this.#isOver) return;
    const { socket, stream } = this.#options;
    this.#finish(reason);
    socket.resetAndDestroy();
    resetStream(stream, codeOf(reason));
  }

  /** Looks whether anything moved since the last look, and ends a flow in which nothing did for too long. */
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
