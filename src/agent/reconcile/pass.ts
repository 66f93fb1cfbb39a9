import type { Logger } from "pino";
import { HostError, InternalError, toError } from "../../errors.ts";
import type { Checkpoint, Confirmation, Entry, Restored } from "../../checkpoint/checkpoint.ts";
import type { Clock } from "../../host/clock.ts";
import { withinDeadline } from "./deadline.ts";
import type { Issue, Outcome, PlannedStep, Prepared, Reconciler, Step, View } from "./section.ts";

/** One section and its raw desired value; undefined takes away what it has made. */
export interface Work {
  readonly section: Reconciler;
  readonly raw: unknown;
}

export interface PassOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly checkpoint: Checkpoint;
  readonly confirmation: Confirmation;
  /** Whether something newer is desired; asked between steps. */
  readonly isStale: () => boolean;
  /** Aborted when the agent stops: an open checkpoint then stays for the next start. */
  readonly signal: AbortSignal;
}

export interface SectionResult {
  readonly name: string;
  readonly outcome: Outcome;
  /** Items that were rejected, wait, or whose step failed. */
  readonly issues: readonly Issue[];
  /** What differed from the desired state before the first step. */
  readonly planned: readonly Step[];
  /** Steps that were carried out. */
  readonly steps: number;
}

/** How a pass ended; one that is `stale` or `restored` says nothing of sections without a result. */
export interface PassResult {
  readonly end: "done" | "stale" | "restored";
  readonly results: readonly SectionResult[];
  readonly restored?: Restored;
  /** Why a pass that was applied is taken back. */
  readonly evidence?: string;
}

/** Carries sections from what the machine has to what is desired: observe and plan all, then apply and verify one after the other. */
export async function runPass(work: readonly Work[], options: PassOptions): Promise<PassResult> {
  const pass = new Pass(work, options);
  return pass.run();
}

interface Candidate {
  readonly section: Reconciler;
  readonly prepared: Prepared;
  readonly view: View;
}

type Applied = {
  readonly end: "through" | "stale" | "guard-failed";
  readonly failures: readonly Failure[];
  readonly steps: number;
};
interface Failure {
  readonly step: Step;
  readonly error: Error;
}

/** A section that fails this often in one pass has a trouble that is not its items'. */
const MAX_FAILURES = 32;

class Pass {
  readonly #work: readonly Work[];
  readonly #options: PassOptions;
  readonly #results: SectionResult[] = [];
  /** Undo of what was begun, of the section at work and of those to come. */
  #entries: readonly Entry[] = [];
  #isOpen = false;
  #begun = 0;
  #hasChanged = false;

  constructor(work: readonly Work[], options: PassOptions) {
    this.#work = work;
    this.#options = options;
  }

  async run(): Promise<PassResult> {
    const { isStale, checkpoint } = this.#options;
    const candidates: Candidate[] = [];
    for (const { section, raw } of this.#work) {
      if (isStale()) return { end: "stale", results: [] };
      const candidate = await this.#prepare(section, raw);
      if (candidate !== undefined) candidates.push(candidate);
    }
    for (const [index, candidate] of candidates.entries()) {
      const end = await this.#runSection(candidate, candidates.slice(index + 1));
      if (end === "through") continue;
      const results = end === "stale" ? [] : this.#results;
      if (!this.#isOpen) return { end: "stale", results };
      return { end: end === "stale" ? "stale" : "restored", results, restored: await this.#restore() };
    }
    if (!this.#isOpen) return { end: "done", results: this.#results };
    const evidence = isStale() ? undefined : await this.#evidence();
    if (evidence === undefined && !isStale()) {
      await checkpoint.confirm();
      return { end: "done", results: this.#results };
    }
    const restored = await this.#restore();
    if (evidence === undefined) return { end: "stale", results: [], restored };
    return { end: "restored", results: [], restored, evidence };
  }

  /** Why the pass cannot be confirmed; a proof that cannot be had is none. */
  async #evidence(): Promise<string | undefined> {
    const { confirmation, signal } = this.#options;
    try {
      return await confirmation(signal);
    } catch (error) {
      signal.throwIfAborted();
      return toError(error).message;
    }
  }

  async #prepare(section: Reconciler, raw: unknown): Promise<Candidate | undefined> {
    try {
      const prepared = section.prepare(raw);
      if (prepared.isUnusable) {
        const issues = prepared.rejected;
        this.#results.push({
          name: section.name,
          outcome: { state: "rejected", issues },
          issues,
          planned: [],
          steps: 0,
        });
        return undefined;
      }
      return { section, prepared, view: await this.#look(section, prepared) };
    } catch (error) {
      this.#failed(section.name, error);
      return undefined;
    }
  }

  async #runSection(candidate: Candidate, later: readonly Candidate[]): Promise<Applied["end"]> {
    const { section, prepared } = candidate;
    if (this.#options.isStale()) return "stale";
    try {
      // What sections before this one have done may have changed what it sees.
      const view = this.#hasChanged ? await this.#look(section, prepared) : candidate.view;
      await this.#cover(candidate, view, later);
      const isAtOnce = view.applyAll !== undefined && view.steps.length > 0 && !view.steps.some(isGuarded);
      const applied = isAtOnce ? await this.#applyAll(section, view) : await this.#apply(section, view.steps);
      const planned = view.steps.map(({ step }) => shown(step));
      if (applied.end === "stale") return "stale";
      const after =
        applied.end === "guard-failed" || view.steps.length === 0 ? view : await this.#look(section, prepared);
      this.#results.push({
        name: section.name,
        outcome: outcomeOf(after, applied.failures[0]),
        issues: [
          ...prepared.rejected,
          ...after.waits,
          ...applied.failures.map((failure) => issueOf(section.name, failure)),
        ],
        planned,
        steps: applied.steps,
      });
      return applied.end;
    } catch (error) {
      this.#failed(section.name, error, prepared.rejected);
      return "through";
    }
  }

  /** Has the undo of all steps on disk as soon as one of them is guarded. */
  async #cover({ section, view: first }: Candidate, view: View, later: readonly Candidate[]): Promise<void> {
    const { checkpoint, clock } = this.#options;
    const hasGuarded = ({ steps }: View): boolean => steps.some(isGuarded);
    if (!this.#isOpen && !hasGuarded(view) && !later.some((candidate) => hasGuarded(candidate.view))) return;
    try {
      const ahead = [...entriesOf(section, view), ...later.flatMap(({ section, view }) => entriesOf(section, view))];
      if (!this.#isOpen) {
        await checkpoint.open(ahead, clock.now());
        this.#isOpen = true;
        this.#entries = ahead;
      } else if (view !== first || this.#entries.length !== this.#begun + ahead.length) {
        // What is planned has changed, or a section before this one left steps that it did not begin.
        await checkpoint.amend(this.#begun, ahead);
        this.#entries = [...this.#entries.slice(0, this.#begun), ...ahead];
      }
    } catch (error) {
      // A later section's checkpoint must not hold up a section that needs none.
      if (this.#isOpen || hasGuarded(view)) throw error;
    }
  }

  async #apply(section: Reconciler, planned: readonly PlannedStep[]): Promise<Applied> {
    const { isStale, checkpoint, log, signal } = this.#options;
    const failures: Failure[] = [];
    let steps = 0;
    for (const [index, { step, apply }] of planned.entries()) {
      if (isStale()) return { end: "stale", failures, steps };
      const isHopeless = failures.length >= MAX_FAILURES || failures.some(({ error }) => isTimeout(error));
      if (isHopeless || failures.some((failure) => failure.step.subject === step.subject)) {
        if (this.#isOpen) this.#begun += 1;
        continue;
      }
      try {
        if (this.#isOpen) {
          await checkpoint.mark(this.#begun);
          this.#begun += 1;
        }
        this.#hasChanged = true;
        await this.#within(section, step.kind, apply);
        steps += 1;
      } catch (error) {
        signal.throwIfAborted();
        log.warn({ section: section.name, kind: step.kind, subject: step.subject, err: toError(error) }, "step failed");
        failures.push({ step: shown(step), error: toError(error) });
        if (step.guarded) return { end: "guard-failed", failures, steps };
      }
      log.debug({ section: section.name, kind: step.kind, subject: step.subject, of: planned.length, index }, "step");
    }
    return { end: "through", failures, steps };
  }

  /** Carries out all steps of a section that takes them so. */
  async #applyAll(section: Reconciler, { steps, applyAll }: View): Promise<Applied> {
    const { isStale, checkpoint, log, signal } = this.#options;
    if (isStale()) return { end: "stale", failures: [], steps: 0 };
    try {
      if (this.#isOpen) {
        this.#begun += steps.length;
        await checkpoint.mark(this.#begun - 1);
      }
      this.#hasChanged = true;
      await this.#within(section, "apply", async (signal) => applyAll?.(steps, signal));
      log.debug({ section: section.name, steps: steps.length }, "steps applied at once");
      return { end: "through", failures: [], steps: steps.length };
    } catch (error) {
      signal.throwIfAborted();
      log.warn({ section: section.name, steps: steps.length, err: toError(error) }, "steps failed");
      // It is the section's failure: no item is more to blame than another.
      throw error;
    }
  }

  async #restore(): Promise<Restored> {
    const { checkpoint, signal, clock } = this.#options;
    const sections = this.#work.map(({ section }) => boundedRestorable(section, clock));
    return checkpoint.restore(sections, signal);
  }

  #look(section: Reconciler, prepared: Prepared): Promise<View> {
    return this.#within(section, "observe", (signal) => prepared.look(signal));
  }

  #within<T>(section: Reconciler, what: string, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const { clock, signal } = this.#options;
    return withinDeadline({ clock, ms: section.deadlineMs, what: `${section.name}: ${what}`, signal }, work);
  }

  #failed(name: string, thrown: unknown, issues: readonly Issue[] = []): void {
    this.#options.signal.throwIfAborted();
    const error = toError(thrown);
    this.#results.push({ name, outcome: { state: "failed", error }, issues, planned: [], steps: 0 });
  }
}

/** A section whose undo steps each have the section's time and no more. */
export function boundedRestorable(section: Reconciler, clock: Clock): Pick<Reconciler, "name" | "applyStored"> {
  const { name, deadlineMs: ms } = section;
  return {
    name,
    applyStored: (step, signal) =>
      withinDeadline({ clock, ms, what: `${name}: undo`, signal }, (signal) => section.applyStored(step, signal)),
  };
}

function outcomeOf(view: View, failure: Failure | undefined): Outcome {
  if (failure !== undefined) return { state: "failed", ...failure };
  if (view.steps.length > 0) return { state: "diverged", remaining: view.steps.map(({ step }) => shown(step)) };
  const waits = view.waits[0];
  return waits === undefined
    ? { state: "converged", reported: view.reported() }
    : { state: "pending", reason: waits.message };
}

function issueOf(section: string, { step, error }: Failure): Issue {
  const code = error instanceof HostError || error instanceof InternalError ? error.code : "internal";
  const path = step.subject === "" ? section : `${section}.${step.subject}`;
  return { path: path.slice(0, 512), code, message: `${step.kind}: ${error.message}`.slice(0, 1024) };
}

function entriesOf({ name }: Reconciler, { steps }: View): Entry[] {
  return steps.map(({ undo }) => ({ section: name, undo: undo() }));
}

/** A step without whatever else it carries, which may be secret. */
function shown({ kind, subject, guarded }: Step): Step {
  return { kind, subject, guarded };
}

function isGuarded({ step }: PlannedStep): boolean {
  return step.guarded;
}

function isTimeout(error: Error): boolean {
  return error instanceof HostError && error.code === "timeout";
}
