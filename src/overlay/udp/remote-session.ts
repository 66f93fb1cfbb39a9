import { randomUUID } from "node:crypto";
import type { Clock } from "../../host/clock.ts";
import type { OverlayReason } from "../../protocol/overlay/overlay.ts";
import type { Dial } from "../dial/dial.ts";
import { DatagramPipe } from "../flow/datagram-pipe.ts";
import { codeOf, reasonOfCode } from "../flow/stream-reset.ts";
import type { Dialled } from "../flow/running-flow.ts";
import type { Remote, RemoteTarget } from "../listeners/remote.ts";
import { DatagramQueue } from "../flow/datagram-queue.ts";
import type { UdpFlow } from "./session.ts";

export interface RemoteUdpSessionOptions {
  readonly sourceIp: string;
  readonly sourcePort: number;
  readonly dialled: Dialled;
  /** Connector that the session came through. */
  readonly connector: string;
  readonly target: RemoteTarget;
  readonly remote: Remote;
  readonly isTransfer?: boolean;
  readonly clock: Clock;
  readonly startedAt: number;
  /** Sends to the client; false if it could not. */
  readonly reply: (datagram: Buffer) => boolean;
  readonly onDrop: () => void;
  /** Called once; without a reason when the session was idle. */
  readonly onEnd: (session: RemoteUdpSession, reason: OverlayReason | undefined) => void;
}

/** Connects the datagrams of one client address and port with a stream to another node. */
export class RemoteUdpSession implements UdpFlow {
  readonly id = randomUUID();
  readonly sourceIp: string;
  readonly sourcePort: number;
  readonly dialled: Dialled;
  readonly target: RemoteTarget;
  readonly startedAt: number;
  readonly destination = undefined;
  bytesIn = 0;
  bytesOut = 0;
  readonly #options: RemoteUdpSessionOptions;
  readonly #waiting = new DatagramQueue();
  #dial: Dial | undefined;
  #pipe: DatagramPipe | undefined;
  #isOver = false;
  #activeAt: number;

  constructor(options: RemoteUdpSessionOptions) {
    this.sourceIp = options.sourceIp;
    this.sourcePort = options.sourcePort;
    this.dialled = options.dialled;
    this.target = options.target;
    this.startedAt = options.startedAt;
    this.#options = options;
    this.#activeAt = options.clock.elapsed();
  }

  get isConnected(): boolean {
    return this.#pipe !== undefined;
  }

  start(): void {
    const { remote, connector, target, clock, onDrop } = this.#options;
    const client = { ip: this.sourceIp, port: this.sourcePort };
    const application = this.#options.isTransfer === true ? "tftp" : undefined;
    this.#dial = remote.dial(
      { target, protocol: "udp", application, flow: this.id, connector, client },
      {
        opened: (stream, lost) => {
          this.#dial = undefined;
          const onEnd = (code: number): void => this.#finish(lost() ?? (code === 0 ? undefined : reasonOfCode(code)));
          const onDatagram = (datagram: Buffer): void => this.#answer(datagram);
          this.#pipe = new DatagramPipe({ stream, clock, tunnels: remote.tunnels, onDatagram, onDrop, onEnd });
          for (const datagram of this.#waiting.takeAll()) this.#pipe.send(datagram);
        },
        failed: (reason) => this.end(reason),
      },
    );
  }

  take(datagram: Buffer, now: number): void {
    this.#activeAt = now;
    this.bytesIn += datagram.length;
    if (this.#pipe !== undefined) this.#pipe.send(datagram);
    else if (!this.#waiting.add(datagram)) this.#options.onDrop();
  }

  sweep(now: number, idleTimeoutMs: number): void {
    if (now - this.#activeAt >= idleTimeoutMs) this.end(undefined);
  }

  end(reason: OverlayReason | undefined): void {
    if (this.#isOver) return;
    this.#finish(reason);
    this.#dial?.cancel();
    this.#pipe?.close(reason === undefined ? undefined : codeOf(reason));
  }

  #answer(datagram: Buffer): void {
    if (!this.#options.reply(datagram)) return this.#options.onDrop();
    this.bytesOut += datagram.length;
  }

  #finish(reason: OverlayReason | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#options.onEnd(this, reason);
  }
}
