import type { Logger } from "pino";
import { z } from "zod";
import { HostError, InputError, toError } from "../../../errors.ts";
import type { Clock } from "../../../host/clock.ts";
import type { OutputFrame, PullProgress } from "../../../host/engine/engine.ts";
import { decide, type Effect, type Event, type JobResult } from "./decide.ts";
import { failureCode } from "../model/failure-code.ts";
import { beginning, standsAt, wakeAt, type Found, type Job, type Standing } from "../model/standing.ts";
import type { Ledger } from "../model/ledger.ts";
import type { WorkState } from "../model/compute.ts";
import type { Wanted } from "../model/wanted.ts";
import { timetable, type Timetable } from "./schedule.ts";

/** Runs the jobs of workers at the engine. */
export interface JobRunner {
  /** Runs a job and reports a start's phase. */
  run(worker: Worker, job: Job, signal: AbortSignal): Promise<void>;
  /** Reads a definition's container at the engine. */
  found(id: string, signal: AbortSignal): Promise<Found | undefined>;
}

export interface WorkerOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly ledger: Ledger;
  readonly jobs: JobRunner;
  /** Called after each change of state. */
  readonly onChange: (worker: Worker) => void;
  /** Called if the ledger cannot be written. */
  readonly onRefused: (error: unknown) => void;
}

/** A run with a waiting caller. */
export interface Attachment {
  readonly onOutput: (output: AsyncIterable<OutputFrame>) => void;
  readonly onPull: ((progress: PullProgress) => void) | undefined;
}

/** A successor that could not start after its predecessor was stopped; not retried until something changes. */
const Refusal = z.object({
  /** Hashes of its definition and limits, and its image. */
  hash: z.string(),
  limits: z.string(),
  imageId: z.string(),
  reason: z.string(),
  /** Code of the machine's condition, if that is the reason. */
  code: z.string().optional(),
});
type Refusal = z.infer<typeof Refusal>;

const MAX_WAIT_MS = 3_600_000;
const FOUND_MS = 10_000;

/** One definition: its state, its timers and its current job. */
export class Worker {
  readonly id: string;
  readonly #options: WorkerOptions;
  readonly #stopping = new AbortController();
  readonly #waiters = new Set<() => void>();
  #standing: Standing;
  #wanted: Wanted | undefined;
  #since: number;
  #state: WorkState;
  #job: AbortController | undefined;
  #working: Promise<void> = Promise.resolve();
  #cancelTimer = (): void => undefined;
  #cancelRun = (): void => undefined;
  #refusal: Refusal | undefined;
  attachment: Attachment | undefined;
  /** Limits that the engine refused for the running container, by hash. */
  refusedLimits: { readonly limits: string; readonly reason: string } | undefined;
  /** Reason why its local image could not be compared with the registry at the last start. */
  unaskedImage: { readonly reference: string; readonly reason: string } | undefined;
  /** Out-of-memory kills. */
  oomKills = 0;

  constructor(id: string, found: Found | undefined, options: WorkerOptions) {
    this.id = id;
    this.#options = options;
    // A running container was started by somebody since.
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

  /** Stored refusal: a running container is not stopped at each agent start for a successor that cannot start. */
  set refusal(refusal: Refusal | undefined) {
    this.#refusal = refusal;
    this.#note({ refused: refusal === undefined ? undefined : JSON.stringify(refusal) });
  }

  /** Sets the goal. */
  want(wanted: Wanted): void {
    const { blueprint } = wanted;
    const isSame = blueprint?.hash === this.#refusal?.hash && blueprint?.limitsHash === this.#refusal?.limits;
    // The first goal of an agent equals the last goal of the previous one unless it differs.
    if (this.#wanted !== undefined || !isSame) this.refusal = undefined;
    this.#wanted = wanted;
    this.take({ is: "wanted", goal: wanted.goal });
    this.#plan();
  }

  /** Stops the container and keeps it. */
  suspend(): void {
    this.#cancelRun();
    this.take({ is: "wanted", goal: { is: "suspended" } });
  }

  /** Stops and removes the container. */
  drop(): void {
    this.#cancelRun();
    this.take({ is: "wanted", goal: { is: "gone" } });
  }

  take(event: Event): void {
    if (this.#stopping.signal.aborted) return;
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

  /** Resolves once the probe returns a value; rejects if aborted or closed. */
  until<T>(probe: () => T | undefined, signal: AbortSignal): Promise<T> {
    return new Promise((resolve, reject) => {
      const both = AbortSignal.any([signal, this.#stopping.signal]);
      const check = (): void => {
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
        this.#waiters.delete(check);
        both.removeEventListener("abort", abort);
      };
      if (both.aborted) return abort();
      this.#waiters.add(check);
      both.addEventListener("abort", abort, { once: true });
      check();
    });
  }

  /** Aborts the current job; containers keep running. */
  async close(): Promise<void> {
    this.#stopping.abort(new InputError("cancelled", "the agent is stopping"));
    this.#cancelTimer();
    this.#cancelRun();
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
    const { jobs, log } = this.#options;
    const stopping = this.#stopping.signal;
    // The next decision must wait until this one is applied.
    await Promise.resolve();
    let result: JobResult = { is: "done" };
    try {
      await jobs.run(this, job, AbortSignal.any([cancelled, stopping]));
    } catch (error) {
      if (stopping.aborted) return;
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
      found = await jobs.found(this.id, AbortSignal.any([stopping, AbortSignal.timeout(FOUND_MS)]));
    } catch {
      if (stopping.aborted) return;
      // The engine is unwell; its next list shows the state.
    }
    this.take({ is: "ended", number: job.number, result, found });
  }

  #arm(): void {
    const { clock } = this.#options;
    this.#cancelTimer();
    const now = clock.now();
    const at = wakeAt(this.#standing, now);
    if (at === undefined) return;
    this.#cancelTimer = clock.after(Math.min(at - now, MAX_WAIT_MS), () => this.take({ is: "tick" }));
  }

  /** Stores the next run and sets its timer. */
  #plan(): void {
    const { clock, ledger } = this.#options;
    this.#cancelRun();
    const { spec, goal } = this.#wanted ?? {};
    const schedule = spec?.schedule;
    if (schedule === undefined || spec?.execType !== "recurring" || !spec.enabled) {
      if (ledger.definitions.get(this.id)?.nextRun !== undefined)
        this.#note({ nextRun: undefined, schedule: undefined });
      return;
    }
    const of = timetable(schedule);
    const row = ledger.definitions.get(this.id);
    // A changed definition restarts its interval; a returning one continues.
    const key = `${schedule.text} ${goal?.is === "kept" ? goal.hash : ""}`;
    const now = clock.now();
    const planned = row?.schedule === key ? row.nextRun : undefined;
    const next = planned === undefined ? of.next(now) : of.resume(planned, now);
    this.#note({ schedule: key, nextRun: next });
    this.#armRun(of, next);
  }

  #armRun(of: Timetable, next: number | undefined): void {
    const { clock } = this.#options;
    this.#cancelRun();
    if (next === undefined || this.#stopping.signal.aborted) return;
    this.#cancelRun = clock.after(Math.min(Math.max(next - clock.now(), 0), MAX_WAIT_MS), () => {
      const now = clock.now();
      if (now < next) return this.#runLater(of, next, now);
      const after = of.next(now);
      this.#note({ nextRun: after, lastRun: now });
      this.#armRun(of, after);
      this.take({ is: "due" });
    });
  }

  /** Re-arms: the wait exceeds one timer, or the clock was set back. */
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

/** Parses a stored refusal; undefined if absent or invalid. */
function refusalOf(text: string | undefined): Refusal | undefined {
  if (text === undefined) return undefined;
  try {
    return Refusal.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}
