import { randomUUID } from "node:crypto";
import type { Socket } from "node:net";
import type { OverlayReason } from "../../protocol/overlay/overlay.ts";
import type { Interpreter } from "../flow/interpreter.ts";
import type { RunningFlow } from "../flow/running-flow.ts";
import type { DataPort, DataPorts } from "./data-ports.ts";
import { Dialogue } from "./dialogue.ts";
import { passiveReply, type Passive } from "./passive.ts";

export interface FtpControlOptions {
  /** The client's accepted control connection. */
  readonly client: Socket;
  readonly ports: DataPorts;
  /** Creates the flow of a data connection to the server's port, or refuses it. */
  readonly onData: (socket: Socket, port: number) => RunningFlow | undefined;
  /** Called when the connection does not speak FTP. */
  readonly onFault: () => void;
}

/** Maximum number of data connections per control connection. */
const MAX_DATA_FLOWS = 4;

/** Handles a client's FTP control connection at the node of the connector, and listens for its data connections there. */
export class FtpControl implements Interpreter {
  /** Identifies the control connection to the other node. */
  readonly id = randomUUID();
  readonly #options: FtpControlOptions;
  readonly #dialogue: Dialogue;
  readonly #address: string | undefined;
  readonly #clientIp: string | undefined;
  readonly #flows = new Set<RunningFlow>();
  #port: DataPort | undefined;
  #isOver = false;

  constructor(options: FtpControlOptions) {
    this.#options = options;
    this.#address = options.client.localAddress;
    this.#clientIp = options.client.remoteAddress;
    this.#dialogue = new Dialogue({
      announced: (passive, port) => this.#announced(passive, port),
      // Not within the call that delivered the bytes.
      failed: () => setImmediate(options.onFault),
    });
  }

  get isBusy(): boolean {
    return this.#flows.size > 0;
  }

  request(chunk: Uint8Array): Uint8Array {
    return this.#dialogue.request(chunk);
  }

  reply(chunk: Uint8Array): Uint8Array {
    return this.#dialogue.reply(chunk);
  }

  /** Called when a data connection has ended. */
  ended(flow: RunningFlow): void {
    this.#flows.delete(flow);
  }

  /**
   * Ends with the control connection. After an orderly end running transfers continue, since a server may close before
   * its bytes have arrived.
   */
  close(reason: OverlayReason | undefined): void {
    this.#isOver = true;
    this.#port?.close();
    if (reason !== undefined) for (const flow of this.#flows) flow.abort(reason);
  }

  #announced(passive: Passive, dataPort: number): string | undefined {
    this.#port?.close();
    this.#port = undefined;
    const address = this.#address;
    const clientIp = this.#clientIp;
    if (this.#isOver || address === undefined || clientIp === undefined) return undefined;
    if (this.#flows.size >= MAX_DATA_FLOWS) return undefined;
    const port = this.#options.ports.open({
      address,
      clientIp,
      onConnection: (socket) => this.#take(socket, dataPort),
    });
    if (port === undefined) return undefined;
    const reply = passiveReply(passive, address, port.port);
    if (reply === undefined) port.close();
    else this.#port = port;
    return reply;
  }

  #take(socket: Socket, dataPort: number): void {
    const flow = this.#options.onData(socket, dataPort);
    if (flow !== undefined) this.#flows.add(flow);
  }
}
