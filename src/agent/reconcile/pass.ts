import type { Logger } from "pino";
import { HostError, InternalError, toError } from "../../errors.ts";
import type { Checkpoint, Entry, Restored } from "../../checkpoint/checkpoint.ts";
import type { RestoreReason } from "../../checkpoint/window.ts";
import type { Clock } from "../../host/clock.ts";
import { defined } from "../../lib/defined.ts";
import type { Commit, Verdict } from "./commit.ts";
import { withinDeadline } from "./deadline.ts";
import type { Unreached } from "./prover.ts";
import { nameOf, shown, type Issue, type Outcome, type PlannedStep, type Prepared } from "./section.ts";
import type { Reconciler, Step, View } from "./section.ts";
import type { Failure, PassResult, SectionResult, Versions, Work } from "./work.ts";

/** Parts of the engine that its passes use too. */
export interface PassParts {
  readonly clock: Clock;
  readonly log: Logger;
  readonly checkpoint: Checkpoint;
  readonly commit: Commit;
}

export interface PassOptions extends PassParts {
  /** Document versions of the desired state. */
  readonly versions: Versions;
  /** Reports whether a newer state is desired; called between steps. */
  readonly isStale: () => boolean;
  /** Reports whether the guarded sections' desired values changed; called while the change is being proven. */
  readonly isSuperseded: () => boolean;
  /** Aborts when the agent stops; an open checkpoint stays for the next start. */
  readonly signal: AbortSignal;
}

/**
 * Runs one pass: observes and plans all sections, then applies and verifies them one by one. Removals come first, in reverse order of the
 * sections, so that nothing is removed while another section still uses it.
 */
export async function runPass(work: readonly Work[], options: PassOptions): Promise<PassResult> {
  const { clock, log } = options;
  const from = clock.elapsed();
  const pass = new Pass(work, options);
  const result = await pass.run();
  log.debug({ end: result.end, steps: pass.steps, durationMs: Math.round(clock.elapsed() - from) }, "pass ended");
  return result;
}

/** A section during a pass. */
interface Candidate {
  readonly section: Reconciler;
  readonly prepared: Prepared;
  /** Last observation and plan. */
  view: View;
  readonly failures: Failure[];
  /** Steps planned before the first one ran, without those that only follow changed surroundings. */
  readonly planned: Step[];
  steps: number;
  /** Steps left when its last phase began, by kind and subject. */
  left?: ReadonlySet<string>;
  /** True once it has its result and gets no further phase. */
  isOver: boolean;
}

/** A phase of a section: its removals, its other steps, or all steps. */
interface Phase {
  readonly candidate: Candidate;
  readonly what: "removals" | "others" | "all";
}

/** Result of a phase. */
type PhaseEnd = "through" | "stale" | "guard-failed" | "not-stored";

/** A step and its section. */
interface Due {
  readonly section: string;
  readonly planned: PlannedStep;
}

/** Failed steps per pass after which the section as a whole fails. */
const MAX_FAILURES = 32;
/** Adjustments to changed surroundings while proving; later ones wait for the next pass. */
const MAX_FOLLOWS = 16;

class Pass {
  readonly #work: readonly Work[];
  readonly #options: PassOptions;
  readonly #results: SectionResult[] = [];
  /** Steps whose undo is stored; started ones first. */
  #covered: readonly Due[] = [];
  #entries: readonly Entry[] = [];
  #isOpen = false;
  #begun = 0;
  #hasChanged = false;
  #guardFailure: Failure | undefined;
  #follows = 0;

  constructor(work: readonly Work[], options: PassOptions) {
    this.#work = work;
    this.#options = options;
  }

  async run(): Promise<PassResult> {
    const { isStale, isSuperseded, commit, signal } = this.#options;
    const candidates: Candidate[] = [];
    for (const { section, raw } of this.#work) {
      if (isStale()) return { end: "stale", results: [] };
      const candidate = await this.#prepare(section, raw);
      if (candidate !== undefined) candidates.push(candidate);
    }
    const phases = phasesOf(candidates);
    for (const [index, phase] of phases.entries()) {
      const end = await this.#take(phase, phases.slice(index + 1));
      if (end === "through") continue;
      if (!this.#isOpen) return { end: "stale", results: [] };
      const restored = await this.#restore(end === "guard-failed" ? "step-failed" : "superseded");
      if (end === "stale") return { end: "stale", results: [], restored };
      return { end: "restored", results: this.#results.filter(({ outcome }) => outcome.state === "failed"), restored };
    }
    if (!this.#isOpen) return { end: "done", results: this.#results };
    const settled = await commit.settle(isSuperseded, signal, () => this.#stands(candidates));
    if (settled.is !== "failed") return { end: "done", results: this.#results };
    this.#guardFailure = settled.failure;
    const restored = await this.#restore(settled.reason);
    if (settled.reason === "superseded") return { end: "stale", results: [], restored };
    const evidence = commit.lastRollback?.evidence ?? settled.reason;
    return { end: "restored", results: this.#notConfirmed(evidence), restored, evidence };
  }

  /** Number of applied steps. */
  get steps(): number {
    return this.#results.reduce((sum, { steps }) => sum + steps, 0);
  }

  async #prepare(section: Reconciler, raw: unknown): Promise<Candidate | undefined> {
    let prepared: Prepared | undefined;
    try {
      prepared = section.prepare(raw);
      if (prepared.isUnusable) {
        const outcome = { state: "rejected", issues: prepared.rejected } as const;
        this.#results.push({
          name: section.name,
          outcome,
          ...judgedBy(prepared),
          observed: [],
          planned: [],
          steps: 0,
        });
        return undefined;
      }
      if (prepared.unsupported !== undefined) {
        this.#unsupported(section, raw, prepared.unsupported);
        return undefined;
      }
      const view = await this.#observe(section, prepared);
      return { section, prepared, view, failures: [], planned: [], steps: 0, isOver: false };
    } catch (error) {
      this.#failed(section.name, error, prepared);
      return undefined;
    }
  }

  /** Reports unsupported sections only if they are desired. */
  #unsupported({ name }: Reconciler, raw: unknown, reason: string): void {
    const outcome = raw === undefined ? ({ state: "converged" } as const) : ({ state: "unsupported", reason } as const);
    this.#results.push({ name, outcome, rejected: [], notices: [], observed: [], planned: [], steps: 0 });
  }

  async #take(phase: Phase, later: readonly Phase[]): Promise<PhaseEnd> {
    const { candidate, what } = phase;
    const { section, prepared } = candidate;
    if (candidate.isOver) return "through";
    if (this.#options.isStale()) return "stale";
    try {
      // Earlier phases may have changed the section's observation.
      if (this.#hasChanged) candidate.view = await this.#observe(section, prepared);
      const { view } = candidate;
      const steps = what === "removals" ? view.steps.filter(isRemoval) : view.steps;
      await this.#cover(section, steps, later);
      notePlanned(candidate, steps);
      const isAtOnce = view.applyAll !== undefined && steps.length > 0 && !steps.some(({ step }) => step.guarded);
      const end = isAtOnce ? await this.#applyAll(candidate, steps) : await this.#apply(candidate, steps);
      if (end === "stale" || (end === "through" && what === "removals")) return end;
      const isCut = end === "guard-failed" || end === "not-stored";
      const after = isCut || steps.length === 0 ? view : await this.#observe(section, prepared);
      this.#over(candidate, after);
      return end;
    } catch (error) {
      // Another process rolls the pass back; no section is to blame.
      if (isTaken(error)) throw error;
      candidate.isOver = true;
      this.#failed(section.name, error, prepared);
      return "through";
    }
  }

  #over(candidate: Candidate, after: View): void {
    const { section, prepared, failures, planned, steps } = candidate;
    candidate.isOver = true;
    if (after.steps.length === 0) after.reached();
    candidate.left = new Set(after.steps.map(({ step }) => nameOf(step)));
    const known = this.#results.findIndex(({ name }) => name === section.name);
    this.#results.splice(known < 0 ? this.#results.length : known, 1, {
      name: section.name,
      outcome: outcomeOf(after, failures[0]),
      ...judgedBy(prepared, after),
      observed: [...after.waits, ...failures.map((failure) => issueOf(section.name, failure))],
      undetermined: after.undetermined,
      planned,
      steps,
      reported: after.reported(),
    });
  }

  /** Stores the undo of all steps if any of them is guarded. */
  async #cover({ name }: Reconciler, steps: readonly PlannedStep[], later: readonly Phase[]): Promise<void> {
    const { checkpoint, commit, versions, signal } = this.#options;
    const own = steps.map((planned) => ({ section: name, planned }));
    const ahead = [...own, ...later.flatMap(expected)];
    const guarded = ahead.filter((due) => this.#isGuarded(due));
    if (!this.#isOpen && guarded.length === 0) return;
    try {
      if (!this.#isOpen) {
        const entries = ahead.map(entryOf);
        const guards = Object.fromEntries(guarded.map(({ section }) => [section, this.#rawOf(section) ?? null]));
        await commit.open(entries, guards, versions, signal);
        this.#isOpen = true;
        this.#entries = entries;
      } else if (!isSame(ahead, this.#covered.slice(this.#begun))) {
        // The plan changed, or an earlier section left steps that it did not start.
        const entries = ahead.map(entryOf);
        await checkpoint.amend(this.#begun, entries);
        this.#entries = [...this.#entries.slice(0, this.#begun), ...entries];
      }
      this.#covered = [...this.#covered.slice(0, this.#begun), ...ahead];
    } catch (error) {
      // A later section's checkpoint must not block a section that needs none.
      if (this.#isOpen || guarded.some((due) => due.section === name)) throw error;
    }
  }

  /** Reports whether a step could cut the node off; proven values cannot. */
  #isGuarded({ section, planned }: Due): boolean {
    return planned.step.guarded && !this.#options.commit.isProven(section, this.#rawOf(section));
  }

  #rawOf(name: string): unknown {
    return this.#work.find(({ section }) => section.name === name)?.raw;
  }

  async #apply(candidate: Candidate, planned: readonly PlannedStep[]): Promise<PhaseEnd> {
    const { isStale, checkpoint, log, signal } = this.#options;
    const { section, failures } = candidate;
    const failed = new Set(failures.map(({ step }) => step.subject));
    for (const one of planned) {
      const { step, apply } = one;
      if (isStale()) return "stale";
      const isHopeless = failures.length >= MAX_FAILURES || isTimeout(failures.at(-1)?.error);
      if (isHopeless || failed.has(step.subject)) {
        if (this.#isOpen) this.#begun += 1;
        continue;
      }
      try {
        if (this.#isOpen) await checkpoint.mark(this.#begun);
      } catch (error) {
        signal.throwIfAborted();
        if (isTaken(error)) throw error;
        // The disk is to blame, not the step or the desired state.
        failures.push({ step: shown(step), error: toError(error) });
        return "not-stored";
      }
      try {
        if (this.#isOpen) this.#begun += 1;
        this.#hasChanged = true;
        await this.#within(section, step.kind, apply);
        candidate.steps += 1;
      } catch (error) {
        signal.throwIfAborted();
        if (isTaken(error)) throw error;
        log.warn({ section: section.name, kind: step.kind, subject: step.subject, err: toError(error) }, "step failed");
        failures.push({ step: shown(step), error: toError(error) });
        failed.add(step.subject);
        if (this.#isOpen && this.#isGuarded({ section: section.name, planned: one })) {
          this.#guardFailure = failures.at(-1);
          return "guard-failed";
        }
      }
      log.debug({ section: section.name, kind: step.kind, subject: step.subject, of: planned.length }, "step");
    }
    return "through";
  }

  /** Applies all steps of a section that applies them atomically. */
  async #applyAll(candidate: Candidate, planned: readonly PlannedStep[]): Promise<PhaseEnd> {
    const { isStale, checkpoint, log, signal } = this.#options;
    const { section, view } = candidate;
    if (isStale()) return "stale";
    try {
      if (this.#isOpen) {
        this.#begun += planned.length;
        await checkpoint.mark(this.#begun - 1);
      }
      this.#hasChanged = true;
      await this.#within(section, "apply", async (signal) => view.applyAll?.(planned, signal));
      candidate.steps += planned.length;
      log.debug({ section: section.name, steps: planned.length }, "steps applied at once");
    } catch (error) {
      signal.throwIfAborted();
      log.warn({ section: section.name, steps: planned.length, err: toError(error) }, "steps failed");
      // The section fails as a whole; no single item is to blame.
      throw error;
    }
    return "through";
  }

  /**
   * Reports whether the applied state still holds. A step that is due again was undone by somebody, so targets are not reached over the
   * desired state. Steps that follow changed surroundings (a lease arrived) belong to the change and are applied first.
   */
  async #stands(candidates: readonly Candidate[]): Promise<Verdict> {
    const unreached: Unreached[] = [];
    for (const candidate of candidates) {
      const { section, prepared, left } = candidate;
      if (left === undefined || !this.#covered.some((due) => due.section === section.name && this.#isGuarded(due)))
        continue;
      candidate.view = await this.#observe(section, prepared);
      const { steps, unproven } = candidate.view;
      const one = steps.find(({ step, isFollowing }) => step.guarded && !isFollowing && !left.has(nameOf(step)));
      if (one !== undefined) {
        const step = shown(one.step);
        const message = `somebody else changed it while it was being proven: ${nameOf(step)}`;
        return { is: "failed", failure: { step, error: new HostError("changed-meanwhile", message) } };
      }
      const following = steps.filter(({ isFollowing }) => isFollowing);
      if (following.length > 0 && this.#follows < MAX_FOLLOWS) {
        const failure = await this.#follow(candidate, following);
        if (failure !== undefined) return { is: "failed", failure };
        unreached.push({
          target: section.name,
          message: "adjusted to an external change; verifying again",
          isHere: true,
        });
      }
      unreached.push(...unproven.map(({ message }) => ({ target: section.name, message, isHere: true })));
    }
    return unreached.length === 0 ? { is: "as-applied" } : { is: "not-yet", unreached };
  }

  /** Applies further steps under the same checkpoint. */
  async #follow(candidate: Candidate, following: readonly PlannedStep[]): Promise<Failure | undefined> {
    this.#follows += 1;
    const { section, prepared, failures } = candidate;
    const known = failures.length;
    await this.#cover(section, following, []);
    await this.#apply(candidate, following);
    this.#over(candidate, await this.#observe(section, prepared));
    return failures[known];
  }

  async #restore(reason: RestoreReason): Promise<Restored> {
    const { commit, signal } = this.#options;
    await commit.noteEnd(reason, this.#guardFailure);
    const sections = this.#work.map(({ section }) => section);
    return commit.restore(sections, signal);
  }

  #observe(section: Reconciler, prepared: Prepared): Promise<View> {
    return this.#within(section, "observe", (signal) => prepared.observe(signal));
  }

  #within<T>(section: Reconciler, what: string, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const { clock, signal } = this.#options;
    return withinDeadline({ clock, ms: section.deadlineMs, what: `${section.name}: ${what}`, signal }, work);
  }

  #failed(name: string, thrown: unknown, prepared: Prepared | undefined): void {
    this.#options.signal.throwIfAborted();
    const outcome = { state: "failed", error: toError(thrown) } as const;
    this.#results.push({ name, outcome, ...judgedBy(prepared), planned: [], steps: 0 });
  }

  /** Returns the results that all sections report if their change was rolled back for lack of proof. */
  #notConfirmed(evidence: string): readonly SectionResult[] {
    const error = new HostError("not-confirmed", `rolled back: ${evidence}`);
    return this.#work.map(({ section: { name } }) => {
      const { rejected, notices } = this.#results.find((result) => result.name === name) ?? {};
      return { name, outcome: { state: "failed", error }, ...defined({ rejected, notices }), planned: [], steps: 0 };
    });
  }
}

/**
 * Returns the phases of a pass: removals from the last section to the first, then all other steps from the first to the last. If only
 * one section has steps, they stay together, since no other section depends on what it removes.
 */
function phasesOf(candidates: readonly Candidate[]): readonly Phase[] {
  const busy = candidates.filter(({ view }) => view.steps.length > 0);
  const removing = busy.length < 2 ? [] : busy.filter(({ view }) => view.steps.some(isRemoval)).reverse();
  return [
    ...removing.map((candidate) => ({ candidate, what: "removals" }) as const),
    ...candidates.map((candidate) => ({ candidate, what: removing.includes(candidate) ? "others" : "all" }) as const),
  ];
}

/** Reports whether a step only removes. */
function isRemoval({ step }: PlannedStep): boolean {
  return step.removes === true;
}

/** Returns the expected steps of a later phase. */
function expected({ candidate: { section, view, isOver }, what }: Phase): readonly Due[] {
  if (isOver) return [];
  const steps = what === "all" ? view.steps : view.steps.filter((one) => isRemoval(one) === (what === "removals"));
  return steps.map((planned) => ({ section: section.name, planned }));
}

/** Returns the stored undo of a step. */
function entryOf({ section, planned }: Due): Entry {
  return { section, undo: planned.undo() };
}

/** Reports whether two lists hold the same step objects. */
function isSame(one: readonly Due[], other: readonly Due[]): boolean {
  return one.length === other.length && one.every(({ planned }, index) => planned === other[index]?.planned);
}

/** Records planned steps; a step that reappears after a failed removal counts once. */
function notePlanned({ planned }: Candidate, steps: readonly PlannedStep[]): void {
  const known = new Set(planned.map(({ kind, subject }) => `${kind} ${subject}`));
  const own = steps.filter(({ isFollowing }) => !isFollowing);
  planned.push(...own.map(({ step }) => shown(step)).filter(({ kind, subject }) => !known.has(`${kind} ${subject}`)));
}

/** Returns a section's outcome after its last step. Pure. */
function outcomeOf(view: View, failure: Failure | undefined): Outcome {
  if (failure !== undefined) return { state: "failed", ...failure };
  if (view.steps.length > 0) return { state: "diverged", remaining: view.steps.map(({ step }) => shown(step)) };
  const waits = view.waits[0];
  return waits === undefined ? { state: "converged" } : { state: "pending", reason: waits.message };
}

/** Converts a failed step to an issue of its item. Pure. */
function issueOf(section: string, { step, error }: Failure): Issue {
  const code = error instanceof HostError || error instanceof InternalError ? error.code : "internal";
  const name = step.name ?? step.subject;
  const path = name === "" ? section : `${section}.${name}`;
  return { path: path.slice(0, 512), code, message: `${step.kind}: ${error.message}`.slice(0, 1024) };
}

/** Returns rejected items and notices; nothing for a section that could not be parsed. Pure. */
function judgedBy(prepared: Prepared | undefined, view?: View): Pick<SectionResult, "rejected" | "notices"> {
  if (prepared === undefined) return {};
  return { rejected: prepared.rejected, notices: [...prepared.notices, ...(view?.notices ?? [])] };
}

function isTaken(error: unknown): boolean {
  return error instanceof HostError && error.code === "checkpoint-taken";
}

function isTimeout(error: Error | undefined): boolean {
  return error instanceof HostError && error.code === "timeout";
}
