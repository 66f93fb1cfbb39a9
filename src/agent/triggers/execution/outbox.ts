import { backoff } from "../../../lib/async/backoff.ts";
import type { Logger } from "pino";
import { AgentError, SessionError, toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import { isTransient } from "../../../protocol/channel/rpc.ts";
import type { Journal, UnsentResult } from "./journal.ts";
import type { TriggerChannel, TriggerReply } from "./trigger.ts";

const BATCH = 50;
const RETRY = { firstMs: 2000, maxMs: 60_000 };
/** Attempts per session for a result that the control plane fails to process. */
const MAX_TRIES = 8;
/** After this many consecutive failures the fault is the control plane's: the round stops. */
const MAX_FAILURES_IN_A_ROW = 3;
/** Refusals that apply to every result. */
const FOR_ALL: ReadonlySet<string> = new Set(["busy", "storage-unavailable", "offline"]);

/** A refused result: its failures, and the monotonic ms of its next attempt; infinite until the next session. */
interface Hold {
  readonly failures: number;
  readonly retryAt: number;
}

type Sent = "taken" | "held" | "stop";

/** Sends the journal's unacknowledged results through the newest session, one at a time, oldest first, until each is accepted. */
export class Outbox {
  readonly #clock: Clock;
  readonly #journal: Journal;
  readonly #log: Logger;
  /** Results by id; at most as many as the journal's rows. */
  readonly #holds = new Map<string, Hold>();
  #channel: TriggerChannel | undefined;
  #isSending = false;
  #isAskedAgain = false;
  #failuresInARow = 0;
  /** Consecutive rounds that stopped early. */
  #brokenRounds = 0;
  #cancelRetry = (): void => undefined;

  constructor(journal: Journal, clock: Clock, log: Logger) {
    this.#clock = clock;
    this.#journal = journal;
    this.#log = log;
  }

  attach(channel: TriggerChannel): void {
    this.#channel = channel;
    this.#holds.clear();
    this.#brokenRounds = 0;
    this.flush();
  }

  /** Sends all results; retries failed ones with exponential backoff while the session lasts. `asked` is sent at once. */
  flush(asked?: string): void {
    this.#cancelRetry();
    if (asked !== undefined) this.#holds.delete(asked);
    this.#isAskedAgain = true;
    if (!this.#isSending) void this.#sendAll();
  }

  /** Stops sending. */
  close(): void {
    this.#channel = undefined;
    this.#cancelRetry();
  }

  async #sendAll(): Promise<void> {
    this.#isSending = true;
    let isBroken = false;
    while (this.#isAskedAgain) {
      this.#isAskedAgain = false;
      try {
        isBroken = await this.#isRoundBroken();
      } catch (error) {
        this.#log.error({ err: toError(error) }, "trigger results could not be read");
        isBroken = true;
      }
    }
    this.#isSending = false;
    this.#schedule(isBroken);
  }

  #schedule(isBroken: boolean): void {
    this.#cancelRetry();
    this.#brokenRounds = isBroken ? this.#brokenRounds + 1 : 0;
    if (this.#isOver()) return;
    const turns = [...this.#holds.values()].map(({ retryAt }) => retryAt - this.#clock.elapsed());
    const delay = isBroken ? backoff(this.#brokenRounds, RETRY) : Math.max(0, Math.min(...turns));
    if (Number.isFinite(delay)) this.#cancelRetry = this.#clock.after(delay, () => this.flush());
  }

  #isOver(): boolean {
    return this.#channel === undefined || this.#channel.signal.aborted;
  }

  /**
   * Sends new results before refused ones, so that none waits for a result that is never accepted. Resolves to whether the round stopped
   * early.
   */
  async #isRoundBroken(): Promise<boolean> {
    this.#failuresInARow = 0;
    if (await this.#sweep(({ id }) => !this.#holds.has(id))) return true;
    const now = this.#clock.elapsed();
    const due = new Set([...this.#holds].filter(([, { retryAt }]) => retryAt <= now).map(([id]) => id));
    if (due.size > 0 && (await this.#sweep(({ id }) => due.has(id)))) return true;
    // A result that is still due after its attempt has left the journal.
    for (const id of due) if ((this.#holds.get(id)?.retryAt ?? Infinity) <= now) this.#holds.delete(id);
    return false;
  }

  /** Sends each selected result; resolves to whether it stopped before the last. */
  async #sweep(hasTurn: (result: UnsentResult) => boolean): Promise<boolean> {
    let after = 0;
    for (;;) {
      const results = this.#journal.unacknowledged(BATCH, after);
      for (const result of results) {
        after = result.seq;
        if (hasTurn(result) && (await this.#send(result)) === "stop") return true;
      }
      if (results.length < BATCH) return false;
    }
  }

  async #send({ id, reply }: UnsentResult): Promise<Sent> {
    const channel = this.#channel;
    if (channel === undefined || channel.signal.aborted) return "stop";
    try {
      await untilTaken(channel, id, reply);
    } catch (error) {
      if (isTransient(error)) return this.#hold(id, toError(error));
      this.#log.warn({ id, err: toError(error) }, "the control plane refused a trigger result");
    }
    this.#failuresInARow = 0;
    this.#holds.delete(id);
    this.#journal.acknowledge(id);
    return "taken";
  }

  #hold(id: string, err: Error): Sent {
    if (this.#isOver()) {
      this.#log.warn({ id, err }, "trigger results wait for the next session");
      return "stop";
    }
    if (err instanceof AgentError && FOR_ALL.has(err.code)) {
      this.#log.warn({ err }, "trigger results are sent again");
      return "stop";
    }
    const failures = (this.#holds.get(id)?.failures ?? 0) + 1;
    const isLast = failures >= MAX_TRIES;
    this.#holds.set(id, { failures, retryAt: isLast ? Infinity : this.#clock.elapsed() + backoff(failures, RETRY) });
    if (isLast) this.#log.error({ id, err, failures }, "a trigger result is kept for the next session");
    else this.#log.warn({ id, err, failures }, "a trigger result is sent again");
    this.#failuresInARow += 1;
    return this.#failuresInARow >= MAX_FAILURES_IN_A_ROW ? "stop" : "held";
  }
}

/** Rejects when the session ends, even if the channel still waits. */
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
