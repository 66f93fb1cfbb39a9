import { randomUUID } from "node:crypto";
import type { Socket } from "node:net";
import type { OverlayReason } from "../../protocol/overlay/overlay.ts";
import type { Dial } from "../dial/dial.ts";
import type { TwoWayLimiters } from "../limits/rate-limiter.ts";
import { editing, type Interpreter } from "../flow/interpreter.ts";
import type { Dialled, RunningFlow } from "../flow/running-flow.ts";
import { StreamBridge } from "../flow/stream-bridge.ts";
import type { Remote, RemoteRequest, RemoteTarget } from "../listeners/remote.ts";

export interface RemoteTcpFlowOptions {
  /** Accepted; keeps half-closes and was not read from. */
  readonly client: Socket;
  readonly sourceIp: string;
  readonly dialled: Dialled;
  /** Connector that the flow came through. */
  readonly connector: string;
  readonly target: RemoteTarget;
  readonly remote: Remote;
  /** From the client, and to it. */
  readonly limiters: TwoWayLimiters;
  readonly startedAt: number;
  /** Further fields of the request to the other node. */
  readonly request?: Pick<RemoteRequest, "application" | "flow" | "data">;
  readonly interpreter?: Interpreter | undefined;
  readonly onEnd: (flow: RemoteTcpFlow, reason: OverlayReason | undefined) => void;
}

/** Connects a client's TCP connection with a stream to another node. */
export class RemoteTcpFlow implements RunningFlow {
  readonly id: string;
  readonly sourceIp: string;
  readonly sourcePort: number;
  readonly dialled: Dialled;
  readonly target: RemoteTarget;
  readonly startedAt: number;
  readonly destination = undefined;
  readonly #options: RemoteTcpFlowOptions;
  /** Adds to the record of an aborted flow the bytes that the other end received. */
  agreed: RunningFlow["agreed"];
  #agree: ((taken: number) => Promise<number | undefined>) | undefined;
  #dial: Dial | undefined;
  #bridge: StreamBridge | undefined;
  #waitsSince: number | undefined;
  #isOver = false;

  constructor(options: RemoteTcpFlowOptions) {
    this.id = options.request?.flow ?? randomUUID();
    this.sourceIp = options.sourceIp;
    this.sourcePort = options.client.remotePort ?? 0;
    this.dialled = options.dialled;
    this.target = options.target;
    this.startedAt = options.startedAt;
    this.#options = options;
    options.client.on("error", this.#onError);
  }

  get bytesIn(): number {
    return this.#bridge?.bytesUp ?? 0;
  }

  get bytesOut(): number {
    return this.#bridge?.bytesDown ?? 0;
  }

  get isConnected(): boolean {
    return this.#bridge !== undefined;
  }

  start(): void {
    if (this.#isOver) return;
    const { remote, connector, target, client, limiters, request, interpreter } = this.#options;
    const place = { ip: this.sourceIp, port: this.sourcePort };
    this.#dial = remote.dial(
      { ...request, flow: this.id, connector, target, protocol: "tcp", client: place },
      {
        opened: (stream, lost, agree) => {
          this.#dial = undefined;
          this.#agree = (taken) => (lost() === undefined ? agree(taken) : Promise.resolve(undefined));
          client.off("error", this.#onError);
          const onEnd = (reason: OverlayReason | undefined): void => this.#finish(reason);
          this.#bridge = new StreamBridge({
            socket: client,
            stream,
            limiters,
            tunnels: remote.tunnels,
            ...editing(interpreter, "client"),
            lost,
            onEnd,
          });
          this.#bridge.start();
        },
        failed: (reason) => {
          this.#dial = undefined;
          this.abort(reason);
        },
      },
    );
  }

  /** Resets both sides. */
  abort(reason: OverlayReason): void {
    if (this.#isOver) return;
    if (this.#bridge !== undefined) return this.#bridge.abort(reason);
    this.#finish(reason);
    this.#dial?.cancel();
    this.#options.client.resetAndDestroy();
  }

  sweep(now: number, idleTimeoutMs: number): void {
    if (this.#bridge !== undefined) return this.#bridge.sweep(now, idleTimeoutMs);
    this.#waitsSince ??= now;
    // The other node limits its dial itself, but a flow must not wait indefinitely.
    if (now - this.#waitsSince >= idleTimeoutMs) this.abort("connect-timeout");
  }

  readonly #onError = (): void => this.abort("reset");

  #finish(reason: OverlayReason | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const bridge = this.#bridge;
    if (reason !== undefined && bridge !== undefined) {
      const taken = this.#agree?.(bridge.bytesDown);
      this.agreed = async (record) => {
        const theirs = await taken;
        return theirs === undefined ? record : { ...record, sourceBytes: Math.min(theirs, bridge.read) };
      };
    }
    this.#options.onEnd(this, reason);
  }
}
