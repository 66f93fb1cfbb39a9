import { STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import type { Clock } from "../../host/clock.ts";

/** How long a refusal may take to leave before its socket is cut. */
const REFUSAL_GRACE_MS = 2000;
const MAX_REFUSING = 1024;

/** What an upgrade is answered with instead. */
export interface UpgradeRefusal {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** Says no to upgrades and lets their sockets go: ending one would only close our half. */
export class UpgradeRefusals {
  readonly #clock: Clock;
  #refusing = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  refuse(stream: Duplex, { status, headers = {}, body = "" }: UpgradeRefusal): void {
    if (stream.destroyed || this.#refusing >= MAX_REFUSING) return void stream.destroy();
    this.#refusing += 1;
    const letGo = (): void => void stream.destroy();
    const cancel = this.#clock.after(REFUSAL_GRACE_MS, letGo);
    stream.once("close", () => {
      this.#refusing -= 1;
      cancel();
    });
    const lines = Object.entries({
      ...headers,
      connection: "close",
      "content-length": String(Buffer.byteLength(body)),
    }).map(([name, value]) => `${name}: ${value}\r\n`);
    // Unread input would turn the close into a reset, which could overtake the answer.
    stream.resume();
    stream.end(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}\r\n${lines.join("")}\r\n${body}`, letGo);
  }
}
