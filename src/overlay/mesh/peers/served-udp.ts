import type { Clock } from "../../../host/clock.ts";
import type { OverlayFlow, OverlayReason } from "../../../protocol/overlay/overlay.ts";
import type { NameCache } from "../../dial/name-cache.ts";
import type { OwnSockets } from "../../dial/own-sockets.ts";
import { UdpSession } from "../../udp/session.ts";
import { DatagramPipe } from "../../flow/datagram-pipe.ts";
import { refuse, servedRecord, type ServedFlow, type ServedFlowOptions } from "./served-flow.ts";
import { codeOf, reasonOfCode } from "../../flow/stream-reset.ts";
import { type FlowRequest } from "../transport/wire.ts";

export interface ServedUdpParts {
  readonly clock: Clock;
  readonly names: NameCache;
  readonly own: OwnSockets;
}

/** Connects a peer's stream of datagrams with a UDP socket to the service. */
export class ServedUdp implements ServedFlow {
  readonly peer: string;
  readonly request: FlowRequest;
  readonly #options: ServedFlowOptions;
  readonly #clock: Clock;
  readonly #session: UdpSession;
  #pipe: DatagramPipe | undefined;

  constructor(options: ServedFlowOptions, { clock, names, own }: ServedUdpParts) {
    const { peer, request, offered, startedAt } = options;
    this.peer = peer;
    this.request = request;
    this.#options = options;
    this.#clock = clock;
    this.#session = new UdpSession({
      sourceIp: request.client.ip,
      sourcePort: request.client.port,
      dialled: { port: offered.target.port },
      target: offered.target,
      names,
      own,
      isTransfer: request.application === "tftp",
      startedAt,
      now: clock.elapsed(),
      reply: (datagram) => this.#pipe?.send(datagram) ?? false,
      onDrop: () => undefined,
      onConnected: () => this.#connected(),
      onEnd: (_, reason) => this.#ended(reason),
    });
  }

  start(): void {
    const { stream } = this.#options;
    stream.on("error", () => undefined).on("close", () => this.#onClose());
    this.#session.start();
  }

  abort(reason: OverlayReason): void {
    this.#session.end(reason);
  }

  sweep(now: number): void {
    this.#session.sweep(now, this.#options.offered.idleTimeoutMs);
  }

  #connected(): void {
    const { stream, tunnels } = this.#options;
    if (stream.destroyed || stream.closed) return;
    stream.respond({ ":status": 200, "capsule-protocol": "?1" });
    this.#pipe = new DatagramPipe({
      stream,
      clock: this.#clock,
      tunnels,
      onDatagram: (datagram) => this.#session.take(datagram, this.#clock.elapsed()),
      onDrop: () => undefined,
      onEnd: (code) => this.#session.end(code === 0 ? undefined : reasonOfCode(code)),
    });
  }

  #onClose(): void {
    const { stream, lost } = this.#options;
    this.#session.end(lost() ?? (stream.rstCode === 0 ? undefined : reasonOfCode(stream.rstCode)));
  }

  #ended(reason: OverlayReason | undefined): void {
    const { stream, onEnd } = this.#options;
    if (this.#pipe !== undefined) this.#pipe.close(reason === undefined ? undefined : codeOf(reason));
    else refuse(stream, reason ?? "idle");
    onEnd(this, this.record(reason));
  }

  record(reason?: OverlayReason): OverlayFlow {
    const { peer, request, startedAt } = this.#options;
    const { bytesIn, bytesOut, destination: to, origin: from } = this.#session;
    const times = { startedAt, endedAt: this.#clock.now() };
    return servedRecord(peer, request, { from, to, bytesIn, bytesOut, reason }, times);
  }
}
