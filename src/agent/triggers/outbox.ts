import type { Logger } from "pino";
import { SessionError, toError } from "../../errors.ts";
import { RemoteError } from "../../protocol/rpc.ts";
import type { Journal } from "./journal.ts";
import type { TriggerChannel, TriggerReply } from "./trigger.ts";

const BATCH = 50;
/** Refusals that say "later", not "never". */
const TRANSIENT: ReadonlySet<string> = new Set(["busy", "internal", "storage-unavailable", "timeout"]);

/** Sends the journal's unacknowledged results through the newest session, one at a time, oldest first. */
export class Outbox {
  readonly #journal: Journal;
  readonly #log: Logger;
  #channel: TriggerChannel | undefined;
  #isSending = false;
  #isAskedAgain = false;

  constructor(journal: Journal, log: Logger) {
    this.#journal = journal;
    this.#log = log;
  }

  attach(channel: TriggerChannel): void {
    this.#channel = channel;
    this.flush();
  }

  /** Sends what there is; what fails waits for the next call. */
  flush(): void {
    this.#isAskedAgain = true;
    if (!this.#isSending) void this.#sendAll();
  }

  async #sendAll(): Promise<void> {
    this.#isSending = true;
    while (this.#isAskedAgain) {
      this.#isAskedAgain = false;
      try {
        await this.#sendBatches();
      } catch (error) {
        this.#log.warn({ err: toError(error) }, "trigger results wait for the next session");
      }
    }
    this.#isSending = false;
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
          if (!(error instanceof RemoteError) || TRANSIENT.has(error.code)) throw error;
          this.#log.warn({ id, code: error.code }, "the control plane refused a trigger result");
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
