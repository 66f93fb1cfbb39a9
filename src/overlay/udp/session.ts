import { randomUUID } from "node:crypto";
import { createSocket, type RemoteInfo, type Socket } from "node:dgram";
import { isIP } from "node:net";
import type { OverlayReason } from "../../protocol/overlay/overlay.ts";
import type { DialTarget } from "../dial/dial.ts";
import { withoutAvoided } from "../dial/avoided.ts";
import type { NameCache } from "../dial/name-cache.ts";
import { plainAddress } from "../../lib/net/plain-address.ts";
import type { OwnSockets } from "../dial/own-sockets.ts";
import { connectReason } from "../dial/reasons.ts";
import type { Dialled, Recorded } from "../flow/running-flow.ts";
import { sendBounded } from "../bindings/udp.ts";
import { DatagramQueue } from "../flow/datagram-queue.ts";

export interface UdpSessionOptions {
  readonly sourceIp: string;
  readonly sourcePort: number;
  readonly dialled: Dialled;
  readonly target: DialTarget;
  readonly names: NameCache;
  readonly own: OwnSockets;
  /** The service answers from a port of its own, where the rest of the transfer goes (RFC 1350 §4). */
  readonly isTransfer?: boolean;
  readonly startedAt: number;
  /** Monotonic milliseconds. */
  readonly now: number;
  /** Sends to the client; false if it could not. */
  readonly reply: (datagram: Buffer) => boolean;
  readonly onDrop: () => void;
  /** Called when the socket is connected; datagrams are then sent immediately. */
  readonly onConnected?: () => void;
  /** Called once; without a reason when the session was idle. */
  readonly onEnd: (session: UdpSession, reason: OverlayReason | undefined) => void;
}

/** The datagrams of one client address and port, to a service here or on another node. */
export interface UdpFlow extends Recorded {
  readonly bytesIn: number;
  readonly bytesOut: number;
  /** Reports whether the session has reached its target. */
  readonly isConnected: boolean;
  start(): void;
  /** Passes a client's datagram on in order, or drops it. */
  take(datagram: Buffer, now: number): void;
  sweep(now: number, idleTimeoutMs: number): void;
  end(reason: OverlayReason | undefined): void;
}

/** Connects the datagrams of one client address and port with a socket to the service. */
export class UdpSession implements UdpFlow {
  readonly id = randomUUID();
  readonly sourceIp: string;
  readonly sourcePort: number;
  readonly dialled: Dialled;
  readonly target: DialTarget;
  readonly startedAt: number;
  bytesIn = 0;
  bytesOut = 0;
  readonly #options: UdpSessionOptions;
  readonly #waiting = new DatagramQueue();
  #socket: Socket | undefined;
  #destination: string | undefined;
  /** Port that the service answered a transfer from. */
  #pinned: number | undefined;
  #origin: { readonly ip: string; readonly port: number } | undefined;
  #isOver = false;
  #activeAt: number;

  constructor(options: UdpSessionOptions) {
    this.sourceIp = options.sourceIp;
    this.sourcePort = options.sourcePort;
    this.dialled = options.dialled;
    this.target = options.target;
    this.startedAt = options.startedAt;
    this.#options = options;
    this.#activeAt = options.now;
  }

  get isConnected(): boolean {
    return this.#destination !== undefined;
  }

  get destination(): { readonly ip: string; readonly port: number } | undefined {
    return this.#destination === undefined
      ? undefined
      : { ip: this.#destination, port: this.#pinned ?? this.target.port };
  }

  /** Address and port of its socket. */
  get origin(): { readonly ip: string; readonly port: number } | undefined {
    return this.#origin;
  }

  start(): void {
    this.#connect().catch((error: unknown) => this.end(connectReason(error, this.target.sourceAddress !== undefined)));
  }

  take(datagram: Buffer, now: number): void {
    this.#activeAt = now;
    this.bytesIn += datagram.length;
    const socket = this.isConnected ? this.#socket : undefined;
    const isTaken = socket === undefined ? this.#waiting.add(datagram) : this.#send(socket, datagram);
    if (!isTaken) this.#options.onDrop();
  }

  sweep(now: number, idleTimeoutMs: number): void {
    if (now - this.#activeAt >= idleTimeoutMs) this.end(undefined);
  }

  end(reason: OverlayReason | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#socket?.close();
    this.#options.onEnd(this, reason);
  }

  async #connect(): Promise<void> {
    const address = await this.#address();
    if (this.#isOver) return;
    if (typeof address !== "string") return this.end(address.reason);
    const socket = createSocket(isIP(address) === 6 ? "udp6" : "udp4");
    this.#socket = socket;
    socket.on("error", (error) => {
      // The name may have another address: resolve it again before the time to live of the failed one ends.
      this.#options.names.expireSoon(this.target.host);
      this.end(connectReason(error, this.target.sourceAddress !== undefined));
    });
    socket.on("message", (datagram, from) => {
      if (this.#isFromService(from)) this.#answer(datagram);
      else this.#options.onDrop();
    });
    const { sourceAddress } = this.target;
    const connected = (): void => this.#connected(address);
    const connect = (): void => socket.connect(this.target.port, address, connected);
    const onBound = this.#options.isTransfer === true ? connected : connect;
    if (sourceAddress !== undefined) socket.bind({ address: sourceAddress, exclusive: true }, onBound);
    else if (this.#options.isTransfer === true) socket.bind({ exclusive: true }, onBound);
    else connect();
  }

  async #address(): Promise<string | { readonly reason: OverlayReason }> {
    const { host, port, sourceAddress, avoids } = this.target;
    const found = isIP(host) === 0 ? await this.#options.names.resolve(host) : [host];
    if (found.length === 0) return { reason: "resolve-failed" };
    const { addresses: all, reason } = await withoutAvoided(avoids, found, this.#options.own.localAddresses);
    if (reason !== undefined && all.length === 0) return { reason };
    const family = sourceAddress === undefined ? 0 : isIP(sourceAddress);
    const fitting = family === 0 ? all : all.filter((address) => isIP(address) === family);
    const first = fitting.find((address) => !this.#options.own.leadsHere("udp", address, port));
    return first ?? { reason: fitting.length > 0 ? "loop" : "unreachable" };
  }

  #connected(address: string): void {
    if (this.#isOver || this.#socket === undefined) return;
    this.#destination = address;
    const { address: ip, port } = this.#socket.address();
    // An unconnected socket does not know its source address.
    if (ip !== "0.0.0.0" && ip !== "::") this.#origin = { ip, port };
    this.#options.onConnected?.();
    for (const datagram of this.#waiting.takeAll()) if (!this.#send(this.#socket, datagram)) this.#options.onDrop();
  }

  #send(socket: Socket, datagram: Buffer): boolean {
    if (this.#options.isTransfer !== true) return sendBounded(socket, datagram);
    return sendBounded(socket, datagram, this.#pinned ?? this.target.port, this.#destination);
  }

  /** Reports whether a datagram is from the service. The first port that answers a transfer stays its port. */
  #isFromService({ address, port }: RemoteInfo): boolean {
    if (this.#options.isTransfer !== true) return true;
    if (this.#destination === undefined || plainAddress(address) !== plainAddress(this.#destination)) return false;
    if (this.#pinned === undefined && this.#options.own.leadsHere("udp", address, port)) return false;
    this.#pinned ??= port;
    return port === this.#pinned;
  }

  #answer(datagram: Buffer): void {
    if (this.#isOver) return;
    if (!this.#options.reply(datagram)) return this.#options.onDrop();
    this.bytesOut += datagram.length;
  }
}
