import { randomUUID } from "node:crypto";
import type { Logger } from "pino";
import { HostError, InputError, toError } from "../../../errors.ts";
import { AggregatedLog } from "../../../host/aggregated-log.ts";
import type { Clock } from "../../../host/clock.ts";
import type { TriggerClaims } from "../../../protocol/documents/claims.ts";
import { refusal, type NodeFacts, type Running } from "./admit.ts";
import { failureOf } from "./failure.ts";
import { Job } from "./job.ts";
import type { Journal, JournalEntry } from "./journal.ts";
import { Outbox } from "./outbox.ts";
import { digestOf, parseRequest } from "./request.ts";
import {
  LOCAL_USER,
  type AfterReply,
  type Trigger,
  type TriggerCall,
  type TriggerChannel,
  type TriggerReply,
} from "./trigger.ts";

export interface DispatcherOptions {
  /** Returns the current state of the node. */
  readonly node: () => NodeFacts;
  readonly journal: Journal;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Request of a local caller. */
export interface LocalCall {
  readonly event: string;
  readonly body: unknown;
  readonly wait: boolean;
  readonly deadlineMs?: number;
}

/** Finds a trigger whose name is only known at the call. */
export type FindTrigger = (call: Pick<TriggerCall, "event" | "body" | "isWatched">) => Trigger | undefined;

interface Request {
  readonly call: TriggerCall;
  readonly channel: TriggerChannel;
  /** Receipt and expiry of the signed request, in milliseconds of session time; undefined for a local one. */
  readonly signed: { readonly now: number; readonly expiresMs: number } | undefined;
}

interface Active extends Running {
  readonly digest: string;
  readonly job: Job;
  /** Result of the handler; the reply, if an effect follows it. */
  readonly outcome: Promise<TriggerReply>;
}

const LOCAL_DEADLINE_MS = 3_600_000;
/** Time for the reply to leave before an effect that ends the process. */
const REPLY_HEAD_START_MS = 250;
/** Deadline of an effect that ends this process. */
const EFFECT_MS = 120_000;
/** Characters of a failure's message in the log. */
const MAX_REASON = 512;
const STARTED: TriggerReply = { body: true };

/**
 * Runs triggers: finds them by event, parses, limits, journals, and returns exactly one reply each. The caller has verified and judged the
 * claims (`judgeTrigger`).
 */
export class Dispatcher {
  readonly #options: DispatcherOptions;
  readonly #triggers = new Map<string, Trigger>();
  #find: FindTrigger = () => undefined;
  readonly #active = new Map<string, Active>();
  readonly #outbox: Outbox;
  readonly #work = new Set<Promise<void>>();
  #isClosed = false;
  readonly #ended = { succeeded: 0, failed: 0 };
  readonly #refusals: AggregatedLog;

  constructor(options: DispatcherOptions) {
    this.#options = options;
    this.#refusals = new AggregatedLog(options.log, options.clock);
    this.#outbox = new Outbox(options.journal, options.clock, options.log);
  }

  /** Adds triggers, and functions that find unlisted ones. */
  serve(triggers: readonly Trigger[], find: FindTrigger = () => undefined): void {
    for (const trigger of triggers) this.#triggers.set(trigger.event, trigger);
    this.#find = find;
  }

  /** Numbers of running triggers, and of those that ended since the start. */
  tally(): { readonly running: number; readonly succeeded: number; readonly failed: number } {
    return { running: this.#active.size, ...this.#ended };
  }

  /** Known events, sorted by name. */
  get events(): readonly string[] {
    return [...this.#triggers.keys()].sort();
  }

  /** Event of the running trigger that must run alone. */
  holderOf(exclusive: string): string | undefined {
    return [...this.#active.values()].find((active) => active.exclusive === exclusive)?.event;
  }

  /** Attaches a new session, and sends unacknowledged results through it. */
  attach(channel: TriggerChannel): void {
    this.#outbox.attach(channel);
  }

  /** Answers a verified trigger; `sessionNow` is session time in milliseconds. Never rejects. */
  run(claims: TriggerClaims, channel: TriggerChannel, sessionNow: number): Promise<TriggerReply> {
    const { jti: id, event, body, wait, watched: isWatched = false, user, deadlineMs } = claims;
    return this.#answer({
      call: { id, event, body, wait, isWatched, user, deadlineMs },
      channel,
      signed: { now: sessionNow, expiresMs: claims.exp * 1000 },
    });
  }

  /** Answers a local caller in the same way. Returns the id at once, for `cancel`. */
  runLocal(call: LocalCall, channel: TriggerChannel): { readonly id: string; readonly reply: Promise<TriggerReply> } {
    const id = randomUUID();
    const reply = this.#answer({
      call: { deadlineMs: LOCAL_DEADLINE_MS, ...call, isWatched: !call.wait, id, user: LOCAL_USER },
      channel,
      signed: undefined,
    });
    return { id, reply };
  }

  /** Cancels a trigger: its process tree ends within 2 s, and the reply is `cancelled`. */
  cancel(id: string): void {
    this.#active.get(id)?.job.abort(new InputError("cancelled", "it was cancelled"));
  }

  /** Cancels all triggers; resolves when all are answered and journalled. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const { job } of this.#active.values()) {
      job.abort(new HostError("interrupted", "the node is stopping"));
    }
    await Promise.all(this.#work);
    this.#outbox.close();
  }

  async #answer(request: Request): Promise<TriggerReply> {
    const { id, event, user, wait } = request.call;
    const startedAt = this.#options.clock.elapsed();
    let reply: TriggerReply;
    try {
      reply = await this.#accept(request);
    } catch (thrown) {
      return this.#refuse(request.call, toError(thrown));
    }
    if (reply === STARTED) this.#options.log.info({ id, event, user, wait }, "trigger accepted");
    else this.#log(request.call, reply, startedAt, "trigger answered");
    return reply;
  }

  /** Answers a trigger that is not run. Logs one line a minute per known event and code, since a caller may repeat its mistake. */
  #refuse({ id, event, user, wait }: Request["call"], error: Error): TriggerReply {
    const failure = failureOf(error);
    const { code: outcome, message } = failure;
    this.#ended.failed += 1;
    const reason = message.slice(0, MAX_REASON);
    // Unknown event names come from the caller and are unlimited.
    const kind = `${this.#triggers.has(event) ? event : "unknown event"}: ${outcome}`;
    this.#refusals.warn(kind, { id, event, user, wait, outcome, reason }, "trigger refused");
    if (outcome === "internal") this.#options.log.error({ id, event, err: error }, "trigger failed");
    return { error: failure };
  }

  #log({ id, event, user, wait }: Request["call"], reply: TriggerReply, startedAt: number, what: string): void {
    const failure = "error" in reply ? reply.error : undefined;
    const outcome = failure?.code ?? "ok";
    const reason = failure === undefined ? {} : { reason: failure.message.slice(0, MAX_REASON) };
    this.#ended[outcome === "ok" ? "succeeded" : "failed"] += 1;
    const durationMs = Math.round(this.#options.clock.elapsed() - startedAt);
    this.#options.log.info({ id, event, user, wait, outcome, ...reason, durationMs }, what);
  }

  /** Runs up to the start of the job in one tick, so that a repeated id cannot slip in between. */
  #accept(request: Request): Promise<TriggerReply> {
    const { call, channel, signed } = request;
    const digest = digestOf(call.body);
    const repeated = this.#repeated(request, digest);
    if (repeated !== undefined) return repeated;
    const trigger = this.#triggers.get(call.event) ?? this.#find(call);
    if (trigger === undefined) throw unknownEvent(call.event);
    const body = parseRequest(trigger.event, trigger.request, call.body);
    if (this.#isClosed) throw new InputError("busy", "the node is stopping");
    const refused = refusal(trigger, this.#options.node(), [...this.#active.values()]);
    if (refused !== undefined) throw refused;
    const isReadOnly = trigger.isReadOnly?.(body) ?? trigger.readOnly;
    const isRemedy = trigger.isRemedy?.(body) ?? false;
    const isJournalled = this.#begin(request, digest, { isReadOnly, isRemedy });
    const { clock, log } = this.#options;
    const onFault = (err: Error): void => log.warn({ id: call.id, event: call.event, err }, "trigger handler failed");
    const job = new Job({ trigger, request: body, call, channel, clock, onFault });
    const outcome = job.run();
    const { exclusive, watchedMs } = trigger;
    const isLasting = watchedMs !== undefined && call.isWatched;
    this.#active.set(call.id, { event: trigger.event, exclusive, isLasting, digest, job, outcome });
    const work = this.#finish(trigger, request, { job, outcome, isJournalled, isRemote: signed !== undefined });
    this.#work.add(work);
    void work.finally(() => this.#work.delete(work));
    return call.wait ? outcome : Promise.resolve(STARTED);
  }

  #repeated({ call, signed }: Request, digest: string): Promise<TriggerReply> | undefined {
    const running = this.#active.get(call.id);
    const known = running ?? this.#findEntry(call.id);
    if (known === undefined) return undefined;
    if (known.event !== call.event || known.digest !== digest) {
      throw new InputError("replayed", `${call.id} was used before for another request`);
    }
    if (signed !== undefined) this.#try(() => this.#options.journal.extend(call.id, signed.expiresMs));
    if ("outcome" in known) return call.wait ? known.outcome : Promise.resolve(STARTED);
    if (known.reply === undefined)
      throw new HostError("interrupted", `${call.event} was interrupted; it is not run again`);
    if (call.wait) return Promise.resolve(known.reply);
    this.#try(() => this.#options.journal.sendAgain(call.id));
    this.#outbox.flush(call.id);
    return Promise.resolve(STARTED);
  }

  #findEntry(id: string): ReturnType<Journal["find"]> {
    return this.#try(() => this.#options.journal.find(id));
  }

  /** Returns whether the journal has stored it on disk. */
  #begin(
    { call, signed }: Request,
    digest: string,
    { isReadOnly, isRemedy }: { readonly isReadOnly: boolean; readonly isRemedy: boolean },
  ): boolean {
    const entry: JournalEntry = {
      id: call.id,
      event: call.event,
      digest,
      deadlineMs: call.deadlineMs,
      now: signed?.now ?? this.#options.clock.now(),
      expiresMs: signed?.expiresMs,
      isReadOnly,
    };
    const begun = this.#options.journal.begin(entry);
    if (begun === "started") return true;
    if (begun === "full") throw new InputError("busy", "the journal of triggers is full");
    if (isReadOnly) return false;
    if (isRemedy && this.#options.journal.remember(entry)) {
      this.#options.log.warn(
        { id: call.id, event: call.event },
        "the disk refuses writes; the trigger runs without a stored journal entry",
      );
      return false;
    }
    throw new HostError("storage-unavailable", `${call.event} changes things, and the journal cannot be written`);
  }

  async #finish(
    trigger: Trigger,
    { call, channel }: Request,
    run: { job: Job; outcome: Promise<TriggerReply>; isJournalled: boolean; isRemote: boolean },
  ): Promise<void> {
    const effect = trigger.kind === "one-shot" ? trigger.afterReply : undefined;
    const startedAt = this.#options.clock.elapsed();
    let reply = await run.outcome;
    if (!call.wait) this.#log(call, reply, startedAt, "trigger ended");
    let isDelivered = call.wait && !channel.signal.aborted;
    if (effect !== undefined && "body" in reply) {
      const answer = reply;
      this.#try(() => this.#options.journal.open(call.id, answer, effect.settledBy));
      // The next start does not know this trigger.
      if (!run.isJournalled && !isDelivered) await channel.result(call.id, answer).catch(() => undefined);
      const failed = await this.#act(effect, run.job, channel);
      if (failed === undefined) return; // The row stays open: this process is about to end.
      reply = failed;
      isDelivered = false;
    }
    const settled = reply;
    this.#try(() => this.#options.journal.finish(call.id, settled, !isDelivered));
    void run.job.settled().then(() => this.#active.delete(call.id));
    if (isDelivered) return;
    if (run.isJournalled && run.isRemote) this.#outbox.flush();
    else if (!channel.signal.aborted) await channel.result(call.id, settled).catch(() => undefined);
  }

  /** Applies the effect that ends this process; resolves to the failure, or undefined if the process is ending. */
  async #act(effect: AfterReply, job: Job, channel: TriggerChannel): Promise<TriggerReply | undefined> {
    const { clock, log } = this.#options;
    try {
      await clock.sleep(REPLY_HEAD_START_MS, job.signal);
      await Promise.race([channel.ready().catch(() => undefined), clock.sleep(REPLY_HEAD_START_MS, job.signal)]);
      await effect.act(job.signal);
      await clock.sleep(EFFECT_MS, job.signal);
      throw new HostError("exec-failed", `it was requested and did not happen within ${EFFECT_MS / 1000} s`);
    } catch (thrown) {
      if (this.#isClosed) return undefined;
      const error = job.signal.aborted ? toError(job.signal.reason) : toError(thrown);
      await effect.failed().catch((err: unknown) => log.warn({ err }, "reverting an effect failed"));
      log.warn({ err: error }, "effect after the reply failed");
      return { error: failureOf(error) };
    }
  }

  /** Runs work on the journal; a failure must not prevent the reply. */
  #try<T>(work: () => T): T | undefined {
    try {
      return work();
    } catch (error) {
      this.#options.log.error({ err: error }, "trigger journal failed");
      return undefined;
    }
  }
}

function unknownEvent(event: string): InputError {
  return new InputError("unknown-event", `no trigger event ${event}`, { details: { event } });
}
