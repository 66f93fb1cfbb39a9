import type { Clock } from "../../../host/clock.ts";
import type { OverlayReason } from "../../../protocol/overlay/overlay.ts";
import { Dialogue } from "../../ftp/dialogue.ts";
import type { Interpreter } from "../../flow/interpreter.ts";
import type { Offered } from "../../listeners/targets.ts";
import type { ServedFlow } from "./served-flow.ts";
import { ServedTcp, type ServedTcpOptions } from "./served-tcp.ts";

type Parts = ConstructorParameters<typeof ServedTcp>[1];

/** Maximum number of remembered announcements and of data connections. */
const MAX_ANNOUNCED = 4;
const MAX_DATA_FLOWS = 4;
/** Lifetime of an announcement; the client's side closes its data port after half of it. */
const ANNOUNCED_MS = 60_000;

/**
 * An FTP control connection from a peer to a service here. Permits data connections only to ports that the service
 * announced in it, once each, at the address of the service; the peer cannot choose another target.
 */
export class ServedFtp implements Interpreter {
  readonly flow: ServedTcp;
  readonly #clock: Clock;
  readonly #dialogue: Dialogue;
  readonly #offered: Offered;
  readonly #announced = new Map<number, number>();
  readonly #flows = new Set<ServedFlow>();

  constructor(options: ServedTcpOptions, parts: Parts) {
    this.#clock = parts.clock;
    this.#offered = options.offered;
    this.#dialogue = new Dialogue({
      announced: (_, port, line) => {
        this.#announce(port);
        return line;
      },
      failed: () => setImmediate(() => this.flow.abort("protocol-mismatch")),
    });
    this.flow = new ServedTcp({ ...options, interpreter: this }, parts);
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

  /** Returns the target of a data connection to an announced port; each announcement is valid once. */
  claim(port: number): Offered | OverlayReason {
    const host = this.flow.reached;
    const until = this.#announced.get(port);
    if (host === undefined || until === undefined || this.#clock.elapsed() >= until) return "not-granted";
    if (this.#flows.size >= MAX_DATA_FLOWS) return "too-many-flows";
    this.#announced.delete(port);
    const { target, idleTimeoutMs } = this.#offered;
    return { target: { ...target, host, port }, idleTimeoutMs };
  }

  begun(data: ServedFlow): void {
    this.#flows.add(data);
  }

  ended(data: ServedFlow): void {
    this.#flows.delete(data);
  }

  /**
   * Ends with the control connection. After an orderly end running transfers continue, since a server may close before
   * its bytes have arrived.
   */
  close(reason: OverlayReason | undefined): void {
    this.#announced.clear();
    if (reason !== undefined) for (const flow of this.#flows) flow.abort(reason);
  }

  #announce(port: number): void {
    this.#announced.delete(port);
    this.#announced.set(port, this.#clock.elapsed() + ANNOUNCED_MS);
    const [oldest] = this.#announced.keys();
    if (this.#announced.size > MAX_ANNOUNCED && oldest !== undefined) this.#announced.delete(oldest);
  }
}
