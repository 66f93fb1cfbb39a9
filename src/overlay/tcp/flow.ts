import { randomUUID } from "node:crypto";
import type { OnReadOpts, Socket } from "node:net";
import type { OverlayReason } from "../../protocol/overlay/overlay.ts";
import type { Dial, DialTarget, DialUser, Dialer } from "../dial/dial.ts";
import type { TwoWayLimiters } from "../limits/rate-limiter.ts";
import { IdleCheck } from "../flow/idle-check.ts";
import { OneWayCopy } from "../flow/one-way-copy.ts";
import { ReadBuffer, withOnRead, type BufferPool } from "../flow/read-buffer.ts";
import { editing, type Interpreter } from "../flow/interpreter.ts";
import type { Dialled, RunningFlow } from "../flow/running-flow.ts";
import { flowReason } from "../dial/reasons.ts";

/** Called once when a flow has ended: without a reason when both sides closed in order. */
export type FlowEnd = (flow: TcpFlow, reason: OverlayReason | undefined) => void;

export interface TcpFlowOptions {
  /** Accepted; keeps half-closes and was not read from. */
  readonly client: Socket;
  readonly sourceIp: string;
  readonly dialled: Dialled;
  readonly target: DialTarget;
  readonly dialer: Dialer;
  /** From the client, and to it. */
  readonly limiters: TwoWayLimiters;
  readonly pool: BufferPool;
  readonly interpreter?: Interpreter | undefined;
  readonly startedAt: number;
  readonly onEnd: FlowEnd;
}

/** Maximum read of an accepted socket, and how many consecutive full reads make a flow a bulk flow. */
const PLAIN_BYTES = 64 * 1024;
const FULL_READS = 4;

/** Connects a client's TCP connection with one to the target. Passes half-closes and resets on. */
export class TcpFlow implements RunningFlow, DialUser {
  readonly id = randomUUID();
  readonly sourceIp: string;
  readonly sourcePort: number;
  readonly dialled: Dialled;
  readonly target: DialTarget;
  readonly startedAt: number;
  readonly #dialer: Dialer;
  readonly #onEnd: FlowEnd;
  readonly #up: OneWayCopy;
  readonly #down: OneWayCopy;
  readonly #interpreter: Interpreter | undefined;
  readonly #pool: BufferPool;
  readonly #downBuffer: ReadBuffer;
  readonly #idle = new IdleCheck();
  #upBuffer: ReadBuffer | undefined;
  #client: Socket;
  #upstream: Socket | undefined;
  #dial: Dial | undefined;
  #address: string | undefined;
  #closed = 0;
  #isOver = false;
  #fullReads = 0;

  constructor(options: TcpFlowOptions) {
    this.#client = options.client;
    this.sourceIp = options.sourceIp;
    this.sourcePort = options.client.remotePort ?? 0;
    this.dialled = options.dialled;
    this.target = options.target;
    this.startedAt = options.startedAt;
    const { limiters, pool, interpreter } = options;
    this.#interpreter = interpreter;
    this.#pool = pool;
    const { edits } = editing(interpreter, "client");
    this.#up = new OneWayCopy({ limiters: [limiters.in], edit: edits?.up });
    this.#down = new OneWayCopy({ limiters: [limiters.out], edit: edits?.down });
    this.#downBuffer = new ReadBuffer(this.#down, pool);
    this.#dialer = options.dialer;
    this.#onEnd = options.onEnd;
    this.#client.on("error", this.#onError);
  }

  get bytesIn(): number {
    return this.#client.bytesRead;
  }

  get bytesOut(): number {
    return this.#upstream?.bytesRead ?? 0;
  }

  /** Read options of the dialled socket. */
  get onread(): OnReadOpts {
    return this.#downBuffer.onread;
  }

  get isConnected(): boolean {
    return this.#upstream !== undefined;
  }

  /** Address that was reached. */
  get destination(): { readonly ip: string; readonly port: number } | undefined {
    return this.#address === undefined ? undefined : { ip: this.#address, port: this.target.port };
  }

  start(): void {
    if (this.#isOver) return;
    const dial = this.#dialer.dial(this.target, this);
    if (!this.#isOver && this.#upstream === undefined) this.#dial = dial;
  }

  connected(upstream: Socket, address: string): void {
    this.#dial = undefined;
    this.#upstream = upstream;
    this.#address = address;
    this.#up.writeTo(upstream);
    this.#up.readFrom(this.#client);
    this.#down.writeTo(this.#client);
    this.#down.readFrom(upstream);
    upstream.on("error", this.#onError).on("close", this.#onClose);
    this.#client.on("data", this.#onData).on("close", this.#onClose).resume();
  }

  failed(reason: OverlayReason): void {
    this.#dial = undefined;
    this.abort(reason);
  }

  /** Resets both sides. */
  abort(reason: OverlayReason): void {
    if (this.#isOver) return;
    this.#finish(reason);
    this.#dial?.cancel();
    this.#client.resetAndDestroy();
    this.#upstream?.resetAndDestroy();
  }

  /** Ends the flow if it was idle for too long, longer than 60 s if it is half-closed. */
  sweep(now: number, idleTimeoutMs: number): void {
    const client = this.#client;
    const upstream = this.#upstream;
    if (upstream === undefined) return;
    const progress = client.bytesRead + upstream.bytesRead - client.writableLength - upstream.writableLength;
    const isInUse = this.#up.isRateLimited || this.#down.isRateLimited || this.#interpreter?.isBusy === true;
    const isHalfClosed = client.readableEnded || upstream.readableEnded;
    if (this.#idle.isOver(progress, { isInUse, isHalfClosed }, now, idleTimeoutMs)) this.abort("idle");
  }

  readonly #onData = (chunk: Buffer): void => {
    if (!this.#up.pass(chunk)) this.#client.pause();
    else if (chunk.length < PLAIN_BYTES) this.#fullReads = 0;
    else if ((this.#fullReads += 1) >= FULL_READS) this.#readInBulk();
  };

  /** Moves a client that sends much to a socket with a read buffer of its own. */
  #readInBulk(): void {
    const plain = this.#client;
    if (this.#isOver || plain.writableLength > 0 || plain.writableEnded || plain.readableLength > 0) return;
    const buffer = new ReadBuffer(this.#up, this.#pool);
    const client = withOnRead(plain, buffer.onread);
    if (client === undefined) return;
    this.#upBuffer = buffer;
    plain.removeAllListeners();
    this.#client = client.on("error", this.#onError).on("close", this.#onClose);
    this.#up.readFrom(client);
    this.#down.writeTo(client);
    client.resume();
  }

  readonly #onError = (error: Error): void => this.abort(flowReason(error));

  readonly #onClose = (): void => {
    this.#closed += 1;
    if (this.#closed === 2) this.#finish(undefined);
  };

  #finish(reason: OverlayReason | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#up.close();
    this.#down.close();
    this.#upBuffer?.close();
    this.#downBuffer.close();
    this.#onEnd(this, reason);
  }
}
