import { randomUUID } from "node:crypto";
import type { Socket } from "node:net";
import type { OverlayReason } from "../../protocol/overlay/overlay.ts";
import type { Interpreter } from "../flow/interpreter.ts";
import type { RunningFlow } from "../flow/running-flow.ts";
import type { DataPort, DataPorts } from "./data-ports.ts";
import { Dialogue } from "./dialogue.ts";
import { passiveReply, type Passive } from "./passive.ts";

export interface FtpControlOptions {
  /** The accepted control connection. */
  readonly client: Socket;
  readonly ports: DataPorts;
  /** Makes a flow of a data connection to the port that the server waits at, or refuses it. */
  readonly onData: (socket: Socket, port: number) => RunningFlow | undefined;
  /** It does not speak FTP. */
  readonly onFault: () => void;
}

/** More data connections of one control connection are none that a client needs. */
const MAX_DATA_FLOWS = 4;

/** A client's control connection at the node it came to: data connections come to this node too. */
export class FtpControl implements Interpreter {
  /** What the other node knows it by. */
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
      // Not within the call that brought the bytes.
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

  /** A data connection is over. */
  ended(flow: RunningFlow): void {
    this.#flows.delete(flow);
  }

  /** The control connection is over: in order, what is under way goes on, since a server may be done before its bytes have passed. */
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
