import { createSocket, type RemoteInfo, type Socket } from "node:dgram";
import { isIP } from "node:net";
import { toError } from "../../errors.ts";
import { bindReason } from "../dial/reasons.ts";
import { hasRoom } from "../flow/datagram-queue.ts";
import type { BindingState } from "./tcp.ts";

export type DatagramTaker = (datagram: Buffer, from: RemoteInfo, binding: UdpBinding) => void;

/** Listens on one UDP address and port. */
export class UdpBinding {
  readonly address: string;
  readonly port: number;
  readonly #take: DatagramTaker;
  #state: BindingState = { at: "closed" };
  #socket: Socket | undefined;

  constructor(address: string, port: number, take: DatagramTaker) {
    this.address = address;
    this.port = port;
    this.#take = take;
  }

  get state(): BindingState {
    return this.#state;
  }

  /** Starts listening unless already listening. Never rejects. The bind is exclusive, except beside a predecessor. */
  async open(isBeside: boolean): Promise<void> {
    if (this.#state.at === "listening" || this.#state.at === "opening") return;
    this.#state = { at: "opening" };
    try {
      if (!isBeside) await this.#probe();
      const socket = await this.#bind(true);
      if (this.#isClosed()) {
        socket.close();
        return;
      }
      socket.on("message", (datagram, from) => this.#take(datagram, from, this));
      // The kernel reports a reply that the network refused as an error of a later call. The session's idle timeout
      // handles it.
      socket.on("error", () => undefined);
      this.#socket = socket;
      this.#state = { at: "listening" };
    } catch (thrown) {
      const error = toError(thrown);
      this.#state = { at: "failed", reason: bindReason(error), message: error.message };
    }
  }

  /** Sends a reply; false when it was dropped because the send queue is full. */
  send(datagram: Buffer, port: number, address: string): boolean {
    return this.#socket !== undefined && sendBounded(this.#socket, datagram, port, address);
  }

  close(): void {
    this.#state = { at: "closed" };
    this.#socket?.close();
    this.#socket = undefined;
  }

  #isClosed(): boolean {
    return this.#state.at === "closed";
  }

  async #probe(): Promise<void> {
    const socket = await this.#bind(false);
    await new Promise<void>((resolve) => socket.close(resolve));
  }

  #bind(reusePort: boolean): Promise<Socket> {
    const isV6 = isIP(this.address) === 6;
    const socket = createSocket({ type: isV6 ? "udp6" : "udp4", ipv6Only: isV6, reusePort });
    return new Promise((resolve, reject) => {
      socket.once("error", (error) => {
        socket.close();
        reject(error);
      });
      socket.bind({ address: this.address, port: this.port, exclusive: true }, () => {
        socket.removeAllListeners("error");
        resolve(socket);
      });
    });
  }
}

/** Sends on a socket, connected when no address is given; false when the datagram was dropped. */
export function sendBounded(socket: Socket, datagram: Buffer, port?: number, address?: string): boolean {
  if (!hasRoom(socket.getSendQueueCount(), socket.getSendQueueSize(), datagram.length)) return false;
  // With a callback a failed send emits no event. UDP does not guarantee delivery anyway.
  if (port === undefined || address === undefined) socket.send(datagram, ignore);
  else socket.send(datagram, port, address, ignore);
  return true;
}

function ignore(): void {}
