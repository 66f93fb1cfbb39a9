import { createSocket, type Socket } from "node:dgram";
import { isIP } from "node:net";
import { plainAddress } from "../../lib/net/plain-address.ts";
import { sendBounded } from "../bindings/udp.ts";

/** Reports whether a datagram requests a transfer (RFC 1350 §5: RRQ or WRQ). */
export function isTransferRequest(datagram: Uint8Array): boolean {
  return datagram.length >= 4 && datagram[0] === 0 && (datagram[1] === 1 || datagram[1] === 2);
}

export interface TransferPortOptions {
  /** Local address. */
  readonly address: string;
  readonly client: { readonly ip: string; readonly port: number };
  readonly onDatagram: (datagram: Buffer) => void;
  /** Called for a datagram of another client. */
  readonly onDrop: () => void;
  readonly onError: (error: Error) => void;
}

/** Port of this node for one transfer (RFC 1350 §4, the transfer identifier) of one client. */
export class TransferPort {
  readonly #socket: Socket;
  readonly #client: TransferPortOptions["client"];
  #isClosed = false;

  constructor({ address, client, onDatagram, onDrop, onError }: TransferPortOptions) {
    this.#client = client;
    this.#socket = createSocket(isIP(address) === 6 ? "udp6" : "udp4").on("error", onError);
    this.#socket.on("message", (datagram, from) => {
      const isClient = from.port === client.port && plainAddress(from.address) === plainAddress(client.ip);
      if (isClient) onDatagram(datagram);
      else onDrop();
    });
    this.#socket.bind({ address, exclusive: true });
  }

  /** Sends to the client; false when it was dropped because the send queue is full. */
  send(datagram: Buffer): boolean {
    return !this.#isClosed && sendBounded(this.#socket, datagram, this.#client.port, this.#client.ip);
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#socket.close();
  }
}
