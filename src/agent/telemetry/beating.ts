import type { Clock } from "../../host/clock.ts";
import type { Heartbeat } from "../../protocol/channel/methods.ts";
import { jitter, type Random } from "../../lib/async/backoff.ts";
import type { Connection } from "../session/attempt.ts";

/** The parts of a session that heartbeats use. */
export type BeatConnection = Pick<Connection, "rpc" | "heartbeatMs" | "isCongested" | "rttMs" | "beaten">;

export interface BeatingOptions {
  readonly clock: Clock;
  readonly random: Random;
  /** `leftOut` is the number of heartbeats that were not sent. */
  readonly heartbeat: (seq: number, connection: BeatConnection, leftOut: number) => Heartbeat;
}

const FIRST_WITHIN_MS = 2000;

/** Sends heartbeats during a session, with jitter, so that a fleet does not send in step; one that would queue is skipped and counted. */
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
      this.#after(jitter(connection.heartbeatMs, [0.9, 1.1], this.#options.random), connection);
      // A gap in the numbers shows the control plane that a heartbeat was skipped.
      this.#seq += 1;
      if (connection.isCongested()) this.#leftOut += 1;
      else {
        connection.rpc.notify("heartbeat", this.#options.heartbeat(this.#seq, connection, this.#leftOut));
        connection.beaten();
      }
    });
  }
}
