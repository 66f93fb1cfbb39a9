import { STATUS_CODES } from "node:http";
import type { Duplex } from "node:stream";
import type { Clock } from "../../host/clock.ts";

/** Time limit to send a refusal before the socket is closed, in milliseconds. */
const REFUSAL_GRACE_MS = 2000;
const MAX_REFUSING = 1024;

/** HTTP response to a refused upgrade. */
export interface UpgradeRefusal {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

/** Refuses upgrades and closes their sockets; ending a socket closes only our direction. */
export class UpgradeRefusals {
  readonly #clock: Clock;
  #refusing = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  refuse(stream: Duplex, { status, headers = {}, body = "" }: UpgradeRefusal): void {
    if (stream.destroyed || this.#refusing >= MAX_REFUSING) return void stream.destroy();
    this.#refusing += 1;
    const destroy = (): void => void stream.destroy();
    const cancel = this.#clock.after(REFUSAL_GRACE_MS, destroy);
    stream.once("close", () => {
      this.#refusing -= 1;
      cancel();
    });
    const lines = Object.entries({
      ...headers,
      connection: "close",
      "content-length": String(Buffer.byteLength(body)),
    }).map(([name, value]) => `${name}: ${value}\r\n`);
    // Unread input would turn the close into a reset, which could overtake the response.
    stream.resume();
    stream.end(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}\r\n${lines.join("")}\r\n${body}`, destroy);
  }
}
