import type { Socket } from "node:net";
import type { Clock } from "../../../host/clock.ts";
import type { OverlayFlow, OverlayReason } from "../../../protocol/overlay/overlay.ts";
import type { Dial, Dialer, DialUser } from "../../dial/dial.ts";
import { editing, type Interpreter } from "../../flow/interpreter.ts";
import { StreamBridge } from "../../flow/stream-bridge.ts";
import { refuse, servedRecord, type Outcome, type ServedFlow, type ServedFlowOptions } from "./served-flow.ts";
import { reasonOfCode } from "../../flow/stream-reset.ts";
import { type FlowRequest } from "../transport/wire.ts";

export interface ServedTcpOptions extends ServedFlowOptions {
  readonly interpreter?: Interpreter | undefined;
}

/** Connects a peer's stream with a TCP connection to the service. */
export class ServedTcp implements ServedFlow, DialUser {
  readonly peer: string;
  readonly request: FlowRequest;
  readonly #options: ServedTcpOptions;
  readonly #clock: Clock;
  readonly #dialer: Dialer;
  #dial: Dial | undefined;
  #bridge: StreamBridge | undefined;
  #places: Pick<Outcome, "from" | "to"> = {};
  #isOver = false;

  constructor(options: ServedTcpOptions, { clock, dialer }: { readonly clock: Clock; readonly dialer: Dialer }) {
    this.peer = options.peer;
    this.request = options.request;
    this.#options = options;
    this.#clock = clock;
    this.#dialer = dialer;
  }

  /** Address that was reached. */
  get reached(): string | undefined {
    return this.#places.to?.ip;
  }

  start(): void {
    const { stream, offered } = this.#options;
    stream.on("error", () => undefined).on("close", this.#onEarlyClose);
    const dial = this.#dialer.dial(offered.target, this);
    if (!this.#isOver && this.#bridge === undefined) this.#dial = dial;
  }

  connected(socket: Socket, address: string): void {
    this.#dial = undefined;
    const { stream, offered, lost, tunnels, interpreter } = this.#options;
    if (this.#isOver || stream.destroyed || stream.closed) {
      socket.on("error", () => undefined).resetAndDestroy();
      return this.#finish({ reason: lost() ?? reasonOfCode(stream.rstCode) });
    }
    stream.off("close", this.#onEarlyClose);
    const { localAddress, localPort } = socket;
    this.#places = {
      from: localAddress === undefined || localPort === undefined ? undefined : { ip: localAddress, port: localPort },
      to: { ip: address, port: offered.target.port },
    };
    stream.respond({ ":status": 200 });
    this.#bridge = new StreamBridge({
      socket,
      stream,
      tunnels,
      ...editing(interpreter, "service"),
      lost,
      onEnd: (reason) => this.#finish({ reason }),
    });
    this.#bridge.start();
  }

  failed(reason: OverlayReason): void {
    this.#dial = undefined;
    if (this.#isOver) return;
    this.#options.stream.off("close", this.#onEarlyClose);
    refuse(this.#options.stream, reason);
    this.#finish({ reason });
  }

  abort(reason: OverlayReason): void {
    if (this.#bridge !== undefined) return this.#bridge.abort(reason);
    this.#dial?.cancel();
    this.failed(reason);
  }

  sweep(now: number): void {
    this.#bridge?.sweep(now, this.#options.offered.idleTimeoutMs);
  }

  record(outcome: Outcome = {}): OverlayFlow {
    const { peer, request, startedAt } = this.#options;
    const moved = { bytesIn: this.#bridge?.bytesDown ?? 0, bytesOut: this.#bridge?.bytesUp ?? 0 };
    const times = { startedAt, endedAt: this.#clock.now() };
    return servedRecord(peer, request, { ...this.#places, ...moved, ...outcome }, times);
  }

  readonly #onEarlyClose = (): void => {
    const { stream, lost } = this.#options;
    this.#dial?.cancel();
    this.#finish({ reason: lost() ?? reasonOfCode(stream.rstCode) });
  };

  #finish(outcome: Outcome): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const { lost, onEnd } = this.#options;
    const isCut = outcome.reason !== undefined && lost() === undefined;
    onEnd(this, this.record(outcome), isCut ? this.#bridge?.read : undefined);
  }
}
