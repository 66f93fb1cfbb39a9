import type { Logger } from "pino";
import { AgentError, InputError, toError } from "../../../errors.ts";
import { AggregatedLog } from "../../../host/aggregated-log.ts";
import type { Clock } from "../../../host/clock.ts";
import { verifyJws, type KeySet } from "../../../protocol/channel/jws.ts";
import type { Dispatcher } from "./dispatch.ts";
import { bodyOf } from "./failure.ts";
import { judgeTrigger } from "./judge.ts";
import type { TriggerChannel, TriggerReply } from "./trigger.ts";

export interface SignedTriggersOptions {
  readonly clock: Clock;
  readonly log: Logger;
  /** The control plane, this node, and the keys that may sign. */
  readonly trust: () => Promise<{ readonly iss: string; readonly uid: string; readonly keys: KeySet }>;
  readonly dispatcher: Pick<Dispatcher, "run" | "cancel" | "events">;
  /** Called for each trigger that is not run. */
  readonly onRefused: (error: unknown) => void;
}

/** The session that delivers a trigger. */
export interface TriggerSession {
  readonly sid: string;
  /** Unix seconds by the control plane's clock. */
  sessionNow(): number;
}

const MAX_CANCELLED = 1024;
const MAX_REASON = 512;

/** Verifies and admits the signed triggers of the control plane, and passes them to the dispatcher. */
export class SignedTriggers {
  readonly #options: SignedTriggersOptions;
  readonly #refusals: AggregatedLog;
  #verifying = 0;
  /** Ids of triggers cancelled during their verification, before the dispatcher knows them. */
  readonly #cancelled = new Set<string>();

  constructor(options: SignedTriggersOptions) {
    this.#options = options;
    this.#refusals = new AggregatedLog(options.log, options.clock);
  }

  /** Returns the body of the reply. @throws {AnsweredFailure} the failure of the trigger; {InputError} the reason why it is not run. */
  async run(jws: string, session: TriggerSession, channel: TriggerChannel): Promise<unknown> {
    try {
      return bodyOf(await this.#start(jws, session, channel));
    } catch (error) {
      this.#options.onRefused(error);
      throw error;
    }
  }

  cancel(id: string): void {
    if (this.#verifying > 0 && this.#cancelled.size < MAX_CANCELLED) this.#cancelled.add(id);
    this.#options.dispatcher.cancel(id);
  }

  async #start(jws: string, session: TriggerSession, channel: TriggerChannel): Promise<TriggerReply> {
    const sessionNow = session.sessionNow() * 1000;
    let reply: Promise<TriggerReply>;
    let event: string | undefined;
    this.#verifying += 1;
    try {
      const { iss, uid, keys } = await this.#options.trust();
      const claims = await verifyJws("holdfast-trigger+jwt", jws, keys);
      ({ event } = claims);
      const refusal = judgeTrigger(claims, { iss, uid, sid: session.sid, sessionNow });
      if (refusal !== undefined) throw refusal;
      if (this.#cancelled.has(claims.jti)) throw new InputError("cancelled", "it was cancelled");
      // Not awaited here: from this tick on the dispatcher knows the trigger, and cancels it itself.
      reply = this.#options.dispatcher.run(claims, channel, sessionNow);
    } catch (error) {
      this.#log(event, toError(error));
      throw error;
    } finally {
      this.#verifying -= 1;
      if (this.#verifying === 0) this.#cancelled.clear();
    }
    return reply;
  }

  /** Logs a trigger that is not dispatched; `event` is undefined if its signature is invalid. */
  #log(event: string | undefined, error: Error): void {
    const outcome = error instanceof AgentError ? error.code : "internal";
    const reason = error.message.slice(0, MAX_REASON);
    const kind = event !== undefined && this.#options.dispatcher.events.includes(event) ? event : "unknown event";
    const named = event === undefined ? {} : { event };
    this.#refusals.warn(`${kind}: ${outcome}`, { ...named, outcome, reason }, "trigger refused");
  }
}
