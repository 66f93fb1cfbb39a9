import type { Clock } from "../../host/clock.ts";
import type { Heartbeat } from "../../protocol/channel/methods.ts";
import type { Random } from "../session/backoff.ts";
import type { Connection } from "../session/attempt.ts";

/** What of a session a heartbeat needs. */
export type BeatConnection = Pick<Connection, "rpc" | "heartbeatMs" | "isCongested" | "rttMs" | "beaten">;

export interface BeatingOptions {
  readonly clock: Clock;
  readonly random: Random;
  /** `leftOut` is how many heartbeats were not sent so far. */
  readonly heartbeat: (seq: number, connection: BeatConnection, leftOut: number) => Heartbeat;
}

const FIRST_WITHIN_MS = 2000;

/** Sends heartbeats while there is a session, jittered so that no fleet beats in step; one that would queue is left out and counted. */
export class Beating {
  readonly #options: BeatingOptions;
  #seq = 0;
  #leftOut = 0;
  #cancel = (): void => undefined;

  constructor(options: BeatingOptions) {
    this.#options = options;
  }

  online(connection: BeatConnection): void {
    this.#after(this.#options.random() * FIRST_WITHIN_MS, connection);
  }

  offline(): void {
    this.#cancel();
  }

  #after(ms: number, connection: BeatConnection): void {
    this.#cancel = this.#options.clock.after(ms, () => {
      this.#after(connection.heartbeatMs * (0.9 + 0.2 * this.#options.random()), connection);
      // A number that is missing tells the control plane that a heartbeat was left out.
      this.#seq += 1;
      if (connection.isCongested()) this.#leftOut += 1;
      else {
        connection.rpc.notify("heartbeat", this.#options.heartbeat(this.#seq, connection, this.#leftOut));
        connection.beaten();
      }
    });
  }
}
