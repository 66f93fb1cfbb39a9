import type { Logger } from "pino";
import { SessionError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { isTransient } from "../../protocol/rpc.ts";
import type { Journal } from "./journal.ts";
import type { TriggerChannel, TriggerReply } from "./trigger.ts";

const BATCH = 50;
const RETRY = { firstMs: 2000, capMs: 60_000 };

/** Sends the journal's unacknowledged results through the newest session, one at a time, oldest first, until each is taken. */
export class Outbox {
  readonly #clock: Clock;
  readonly #journal: Journal;
  readonly #log: Logger;
  #channel: TriggerChannel | undefined;
  #isSending = false;
  #isAskedAgain = false;
  #failures = 0;
  #cancelRetry = (): void => undefined;

  constructor(journal: Journal, clock: Clock, log: Logger) {
    this.#clock = clock;
    this.#journal = journal;
    this.#log = log;
  }

  attach(channel: TriggerChannel): void {
    this.#channel = channel;
    this.#failures = 0;
    this.flush();
  }

  /** Sends what there is; what fails is tried again later and later while the session lasts. */
  flush(): void {
    this.#cancelRetry();
    this.#isAskedAgain = true;
    if (!this.#isSending) void this.#sendAll();
  }

  /** Nothing more is sent. */
  close(): void {
    this.#channel = undefined;
    this.#cancelRetry();
  }

  async #sendAll(): Promise<void> {
    this.#isSending = true;
    while (this.#isAskedAgain) {
      this.#isAskedAgain = false;
      try {
        await this.#sendBatches();
        this.#failures = 0;
      } catch (error) {
        this.#failed(toError(error));
      }
    }
    this.#isSending = false;
  }

  #failed(err: Error): void {
    const isOver = this.#channel === undefined || this.#channel.signal.aborted;
    this.#log.warn({ err }, isOver ? "trigger results wait for the next session" : "trigger results are sent again");
    if (isOver) return;
    const delay = Math.min(RETRY.capMs, RETRY.firstMs * 2 ** Math.min(this.#failures, 8));
    this.#failures += 1;
    this.#cancelRetry();
    this.#cancelRetry = this.#clock.after(delay, () => this.flush());
  }

  async #sendBatches(): Promise<void> {
    for (;;) {
      const results = this.#journal.unacknowledged(BATCH);
      for (const { id, reply } of results) {
        const channel = this.#channel;
        if (channel === undefined || channel.signal.aborted) return;
        try {
          await untilTaken(channel, id, reply);
        } catch (error) {
          if (isTransient(error)) throw error;
          this.#log.warn({ id, err: toError(error) }, "the control plane refused a trigger result");
        }
        this.#journal.acknowledge(id);
      }
      if (results.length < BATCH) return;
    }
  }
}

/** A session that ended takes nothing more, whatever its channel still waits for. */
function untilTaken(channel: TriggerChannel, id: string, reply: TriggerReply): Promise<void> {
  const { signal } = channel;
  return new Promise((resolve, reject) => {
    const onEnd = (): void => reject(new SessionError("offline", "the session has ended"));
    signal.addEventListener("abort", onEnd, { once: true });
    channel
      .result(id, reply)
      .then(resolve, reject)
      .finally(() => signal.removeEventListener("abort", onEnd));
  });
}
