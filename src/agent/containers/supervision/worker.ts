import type { Logger } from "pino";
import { HostError, InputError, toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { OutputFrame, PullProgress } from "../../../host/engine/engine.ts";
import { decide, type Effect, type Event, type JobResult } from "./decide.ts";
import { failureCode } from "../model/failure-code.ts";
import { beginning, standsAt, wakeAt, type Found, type Job, type Standing } from "../model/standing.ts";
import type { Ledger } from "../model/ledger.ts";
import type { WorkState } from "../model/compute.ts";
import { refusalOf, type Refusal } from "./refusal.ts";
import type { Wanted } from "../model/wanted.ts";
import { timetable, type Timetable } from "./schedule.ts";

/** What a worker has done for it at the engine. */
export interface Hands {
  /** Carries out a job; says where a start stands. */
  work(worker: Worker, job: Job, signal: AbortSignal): Promise<void>;
  /** What the engine has of a definition now. */
  found(id: string, signal: AbortSignal): Promise<Found | undefined>;
}

export interface WorkerOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly ledger: Ledger;
  readonly hands: Hands;
  /** After each change of where it stands. */
  readonly onChange: (worker: Worker) => void;
  /** The ledger could not be written. */
  readonly onRefused: (error: unknown) => void;
}

/** A run that somebody watches. */
export interface Attachment {
  readonly onOutput: (output: AsyncIterable<OutputFrame>) => void;
  readonly onPull: ((progress: PullProgress) => void) | undefined;
}

const MAX_WAIT_MS = 3_600_000;
const FOUND_MS = 10_000;

/** One definition: where it stands, its timers, and the one thing that is being done for it. */
export class Worker {
  readonly id: string;
  readonly #options: WorkerOptions;
  readonly #ending = new AbortController();
  readonly #waiters = new Set<() => void>();
  #standing: Standing;
  #wanted: Wanted | undefined;
  #since: number;
  #state: WorkState;
  #job: AbortController | undefined;
  #working: Promise<void> = Promise.resolve();
  #takeBack = (): void => undefined;
  #takeBackRun = (): void => undefined;
  #timetable: { readonly text: string; readonly of: Timetable } | undefined;
  #refusal: Refusal | undefined;
  attachment: Attachment | undefined;
  /** Limits that the engine would not give to what runs, by their hash. */
  refusedLimits: { readonly limits: string; readonly reason: string } | undefined;
  /** Why its image, which was there, could not be compared with the registry's when it was started last. */
  unaskedImage: { readonly reference: string; readonly reason: string } | undefined;
  /** How often the kernel killed a process of it for want of memory. */
  oomKills = 0;

  constructor(id: string, found: Found | undefined, options: WorkerOptions) {
    this.id = id;
    this.#options = options;
    // Whatever runs has been started by somebody since.
    const known = options.ledger.definitions.get(id);
    const byHand = found?.is === "running" ? undefined : known?.byHand;
    this.#refusal = refusalOf(known?.refused);
    this.#standing = beginning(found, byHand);
    this.#since = options.clock.now();
    this.#state = standsAt(this.#standing, this.#since).state;
  }

  get standing(): Standing {
    return this.#standing;
  }

  get wanted(): Wanted | undefined {
    return this.#wanted;
  }

  get since(): number {
    return this.#since;
  }

  get refusal(): Refusal | undefined {
    return this.#refusal;
  }

  /** Outlives the agent: what runs is not stopped at each of its starts for what cannot be started. */
  set refusal(refusal: Refusal | undefined) {
    this.#refusal = refusal;
    this.#note({ refused: refusal === undefined ? undefined : JSON.stringify(refusal) });
  }

  /** What is wanted from now on. */
  want(wanted: Wanted): void {
    const { blueprint } = wanted;
    const isSame = blueprint?.hash === this.#refusal?.hash && blueprint?.limitsHash === this.#refusal?.limits;
    // What an agent is told first is what the one before it was told last, unless it says otherwise.
    if (this.#wanted !== undefined || !isSame) this.refusal = undefined;
    this.#wanted = wanted;
    this.take({ is: "wanted", goal: wanted.goal });
    void this.#plan();
  }

  /** Stops it, and keeps what there is. */
  suspend(): void {
    this.#takeBackRun();
    this.take({ is: "wanted", goal: { is: "suspended" } });
  }

  /** Stops it and takes it away. */
  drop(): void {
    this.#takeBackRun();
    this.take({ is: "wanted", goal: { is: "gone" } });
  }

  take(event: Event): void {
    if (this.#ending.signal.aborted) return;
    const { clock, onChange } = this.#options;
    const now = clock.now();
    if (event.is === "asked") this.refusal = undefined;
    const [standing, effects] = decide(this.#standing, event, now);
    this.#standing = standing;
    for (const effect of effects) this.#carryOut(effect);
    const { state } = standsAt(this.#standing, now);
    if (state !== this.#state) {
      this.#state = state;
      this.#since = now;
    }
    this.#arm();
    for (const waiter of this.#waiters) waiter();
    onChange(this);
  }

  /** Resolves as soon as the probe says something else than undefined; rejects when aborted or closed. */
  until<T>(probe: () => T | undefined, signal: AbortSignal): Promise<T> {
    return new Promise((resolve, reject) => {
      const both = AbortSignal.any([signal, this.#ending.signal]);
      const look = (): void => {
        const value = probe();
        if (value === undefined) return;
        end();
        resolve(value);
      };
      const abort = (): void => {
        end();
        reject(toError(both.reason));
      };
      const end = (): void => {
        this.#waiters.delete(look);
        both.removeEventListener("abort", abort);
      };
      if (both.aborted) return abort();
      this.#waiters.add(look);
      both.addEventListener("abort", abort, { once: true });
      look();
    });
  }

  /** Ends what is being done for it, and nothing that runs. */
  async close(): Promise<void> {
    this.#ending.abort(new InputError("cancelled", "the agent is stopping"));
    this.#takeBack();
    this.#takeBackRun();
    await this.#working;
  }

  #carryOut(effect: Effect): void {
    const { ledger, onRefused } = this.#options;
    switch (effect.do) {
      case "begin":
        this.#job = new AbortController();
        this.#working = this.#work(effect.job, this.#job.signal);
        return;
      case "cancel":
        this.#job?.abort(new InputError("cancelled", "something else is wanted of the container"));
        return;
      case "note-by-hand":
        try {
          ledger.changeDefinition(this.id, { byHand: effect.hash });
        } catch (error) {
          onRefused(error);
        }
    }
  }

  async #work(job: Job, cancelled: AbortSignal): Promise<void> {
    const { hands, log } = this.#options;
    const ending = this.#ending.signal;
    // What is decided upon next must not be decided while this decision is still being carried out.
    await Promise.resolve();
    let result: JobResult = { is: "done" };
    try {
      await hands.work(this, job, AbortSignal.any([cancelled, ending]));
    } catch (error) {
      if (ending.aborted) return;
      const { message } = toError(error);
      const isEngine = error instanceof HostError && error.code === "engine-unwell";
      const isWaiting = error instanceof HostError && error.code === "not-startable";
      const code = failureCode(error);
      result = cancelled.aborted ? { is: "cancelled" } : { is: "failed", reason: message, code, isEngine, isWaiting };
      if (!cancelled.aborted)
        log.warn(
          { container: this.#wanted?.spec.name ?? this.id, job: job.kind, err: toError(error) },
          "container job failed",
        );
    }
    let { found } = this.#standing;
    try {
      found = await hands.found(this.id, AbortSignal.any([ending, AbortSignal.timeout(FOUND_MS)]));
    } catch {
      if (ending.aborted) return;
      // The engine is not well: its list says what there is as soon as it is.
    }
    this.take({ is: "ended", number: job.number, result, found });
  }

  #arm(): void {
    const { clock } = this.#options;
    this.#takeBack();
    const now = clock.now();
    const at = wakeAt(this.#standing, now);
    if (at === undefined) return;
    this.#takeBack = clock.after(Math.min(at - now, MAX_WAIT_MS), () => this.take({ is: "tick" }));
  }

  /** Has the next run in the ledger, and a timer for it. */
  async #plan(): Promise<void> {
    const { clock, ledger, log, onRefused } = this.#options;
    this.#takeBackRun();
    const wanted = this.#wanted;
    const schedule = wanted?.spec.schedule;
    if (
      wanted === undefined ||
      schedule === undefined ||
      wanted.spec.execType !== "recurring" ||
      !wanted.spec.enabled
    ) {
      if (ledger.definitions.get(this.id)?.nextRun !== undefined)
        this.#note({ nextRun: undefined, schedule: undefined });
      return;
    }
    try {
      if (this.#timetable?.text !== schedule.text) {
        this.#timetable = { text: schedule.text, of: await timetable(schedule) };
      }
      if (this.#wanted !== wanted || this.#ending.signal.aborted) return;
      const { of } = this.#timetable;
      const row = ledger.definitions.get(this.id);
      // A definition that was changed begins its interval anew, and one that only comes back goes on.
      const key = `${schedule.text} ${wanted.goal.is === "kept" ? wanted.goal.hash : ""}`;
      const now = clock.now();
      const planned = row?.schedule === key ? row.nextRun : undefined;
      const next = planned === undefined ? of.next(now) : of.resume(planned, now);
      this.#note({ schedule: key, nextRun: next });
      this.#armRun(of, next);
    } catch (error) {
      log.warn({ container: this.id, err: toError(error) }, "its schedule cannot be followed");
      onRefused(error);
    }
  }

  #armRun(of: Timetable, next: number | undefined): void {
    const { clock } = this.#options;
    this.#takeBackRun();
    if (next === undefined || this.#ending.signal.aborted) return;
    this.#takeBackRun = clock.after(Math.min(Math.max(next - clock.now(), 0), MAX_WAIT_MS), () => {
      const now = clock.now();
      if (now < next) return this.#runLater(of, next, now);
      const after = of.next(now);
      this.#note({ nextRun: after, lastRun: now });
      this.#armRun(of, after);
      this.take({ is: "due" });
    });
  }

  /** The wait was too long for one timer, or the clock was set back. */
  #runLater(of: Timetable, planned: number, now: number): void {
    const next = of.resume(planned, now);
    if (next !== planned) this.#note({ nextRun: next });
    this.#armRun(of, next);
  }

  #note(change: Parameters<Ledger["changeDefinition"]>[1]): void {
    const { ledger, onRefused } = this.#options;
    try {
      ledger.changeDefinition(this.id, change);
    } catch (error) {
      onRefused(error);
    }
  }
}
