import type { Socket } from "node:net";
import type { OverlayReason } from "../protocol/overlay.ts";
import type { Dial, DialTarget, DialUser, Dialer } from "./dial.ts";
import type { Gate, GateUser } from "./gate.ts";
import { flowReason } from "./reasons.ts";

/** Told once, when a flow is over: without a reason when both sides closed it in order. */
export type FlowEnd = (flow: TcpFlow, reason: OverlayReason | undefined) => void;

export interface TcpFlowOptions {
  /** Accepted, half-open capable, and not yet read from. */
  readonly client: Socket;
  readonly sourceIp: string;
  readonly target: DialTarget;
  /** From the client, and to it. */
  readonly gates: { readonly in: Gate; readonly out: Gate };
  readonly startedAt: number;
  readonly onEnd: FlowEnd;
}

/** A half-closed flow in which nothing moves is ended after this, lest dead halves pile up. */
const HALF_CLOSED_IDLE_MS = 60_000;

/** One TCP connection to a listener and the one made for it. Half-closes pass through, and so do resets, as resets. */
export class TcpFlow implements DialUser {
  readonly client: Socket;
  readonly sourceIp: string;
  readonly sourcePort: number;
  readonly target: DialTarget;
  readonly startedAt: number;
  readonly #gates: TcpFlowOptions["gates"];
  readonly #onEnd: FlowEnd;
  #upstream: Socket | undefined;
  #dial: Dial | undefined;
  #halves: readonly [Half, Half] | undefined;
  #closed = 0;
  #isOver = false;
  #progress = 0;
  #idleSince = -1;

  constructor(options: TcpFlowOptions) {
    this.client = options.client;
    this.sourceIp = options.sourceIp;
    this.sourcePort = options.client.remotePort ?? 0;
    this.target = options.target;
    this.startedAt = options.startedAt;
    this.#gates = options.gates;
    this.#onEnd = options.onEnd;
    this.client.on("error", this.#onError).on("close", this.#onClose);
  }

  get bytesIn(): number {
    return this.client.bytesRead;
  }

  get bytesOut(): number {
    return this.#upstream?.bytesRead ?? 0;
  }

  get isConnected(): boolean {
    return this.#upstream !== undefined;
  }

  /** The address that was reached. */
  get destination(): { readonly ip: string; readonly port: number } | undefined {
    const ip = this.#upstream?.remoteAddress;
    return ip === undefined ? undefined : { ip, port: this.target.port };
  }

  start(dialer: Dialer): void {
    const dial = dialer.dial(this.target, this);
    if (!this.#isOver && this.#upstream === undefined) this.#dial = dial;
  }

  connected(upstream: Socket): void {
    this.#dial = undefined;
    this.#upstream = upstream;
    upstream.on("error", this.#onError).on("close", this.#onClose);
    this.#halves = [new Half(this.client, upstream, this.#gates.in), new Half(upstream, this.client, this.#gates.out)];
    this.client.resume();
  }

  failed(reason: OverlayReason): void {
    this.#dial = undefined;
    this.abort(reason);
  }

  /** Ends both sides by a reset. */
  abort(reason: OverlayReason): void {
    if (this.#isOver) return;
    this.#finish(reason);
    this.#dial?.cancel();
    this.client.resetAndDestroy();
    this.#upstream?.resetAndDestroy();
  }

  /** Looks whether anything moved since the last look, and ends a flow in which nothing did for too long. */
  sweep(now: number, idleTimeoutMs: number): void {
    const { client } = this;
    const upstream = this.#upstream;
    if (upstream === undefined) return;
    const progress = client.bytesRead + upstream.bytesRead - client.writableLength - upstream.writableLength;
    const waits = this.#halves?.some((half) => half.isAtGate) === true;
    if (progress !== this.#progress || this.#idleSince < 0 || waits) {
      this.#progress = progress;
      this.#idleSince = now;
      return;
    }
    const isHalfClosed = client.readableEnded || upstream.readableEnded;
    const limit = isHalfClosed ? Math.min(idleTimeoutMs, HALF_CLOSED_IDLE_MS) : idleTimeoutMs;
    if (now - this.#idleSince >= limit) this.abort("idle");
  }

  readonly #onError = (error: Error): void => this.abort(flowReason(error));

  readonly #onClose = (): void => {
    this.#closed += 1;
    if (this.#closed === 2) this.#finish(undefined);
  };

  #finish(reason: OverlayReason | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    for (const half of this.#halves ?? []) half.stop();
    this.#onEnd(this, reason);
  }
}

const FULL = 1;
const LIMITED = 2;

/** One direction of a flow. Reading stops while the other side is full or the rate is used up, and only then. */
class Half implements GateUser {
  readonly #from: Socket;
  readonly #gate: Gate;
  #stops = 0;

  constructor(from: Socket, to: Socket, gate: Gate) {
    this.#from = from;
    this.#gate = gate;
    from.on("data", (chunk: Buffer) => {
      if (!to.write(chunk)) this.#stop(FULL);
      if (!gate.isOpen && !gate.pass(this, chunk.length)) this.#stop(LIMITED);
    });
    from.on("end", () => to.end());
    to.on("drain", () => this.#go(FULL));
  }

  get isAtGate(): boolean {
    return (this.#stops & LIMITED) !== 0;
  }

  resumeFromGate(): void {
    this.#go(LIMITED);
  }

  stop(): void {
    this.#gate.leave(this);
  }

  #stop(why: number): void {
    if (this.#stops === 0) this.#from.pause();
    this.#stops |= why;
  }

  #go(why: number): void {
    if (this.#stops === 0) return;
    this.#stops &= ~why;
    if (this.#stops === 0) this.#from.resume();
  }
}
