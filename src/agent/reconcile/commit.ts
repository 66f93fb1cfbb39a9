import type { Logger } from "pino";
import { HostError, InputError, toError } from "../../errors.ts";
import type { Checkpoint, Entry, Restored } from "../../checkpoint/checkpoint.ts";
import type { CommitFiles, Confirmed, Rollback } from "../../checkpoint/commit-files.ts";
import { failuresOf } from "../../checkpoint/restore-pending.ts";
import {
  afterEvent,
  leftOf,
  openWindow,
  type Moment,
  type RestoreReason,
  type Window,
  type WindowEnd,
  type WindowEvent,
  type WindowRequest,
} from "../../checkpoint/window.ts";
import type { Clock } from "../../host/clock.ts";
import { valueOf } from "../../host/files/state-file.ts";
import type { ProcessId } from "../../host/process/process-tree.ts";
import { withinDeadline } from "./deadline.ts";
import { whyHeld, HeldChange } from "./held-change.ts";
import { ProvenRecord } from "./proven-record.ts";
import type { Prover, Unreached } from "./prover.ts";
import { evidenceText, rollbackOf } from "./rollback.ts";
import type { Reconciler } from "./section.ts";
import { isSameValue, type Failure, type Guards, type Versions } from "./work.ts";

/** A process that guards a window from outside. */
export interface Watcher {
  end(): Promise<void>;
}

export interface CommitOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly bootId: string;
  readonly owner: ProcessId;
  readonly checkpoint: Checkpoint;
  readonly files: CommitFiles;
  readonly prover: Prover;
  /** Starts a guard of the window `id` that outlives this process. @throws {HostError} if it cannot start. */
  readonly watch: (id: string, waitMs: number, signal: AbortSignal) => Promise<Watcher>;
  /** Runs a restore under the restore lock, if the lock can be taken in time. */
  readonly alone: <T>(work: () => Promise<T>, signal: AbortSignal) => Promise<T>;
  /** Returns the confirm request of the desired change; `isLocal` for a trial on this machine. */
  readonly request: () => WindowRequest & { readonly isLocal: boolean };
  /** Returns the documents' value of a section that is on trial on this machine. */
  readonly original: (section: string) => unknown;
  /** Reports whether an operator on this machine approved this value, so that it needs no proof. */
  readonly isGiven?: (section: string, raw: unknown) => boolean;
  /** Reverts the documents to the confirmed ones; resolves to whether any document was reverted. */
  readonly refuse: (rollback: Rollback, guards: Guards) => Promise<boolean>;
  /** Called after a rollback. */
  readonly onRollback: (rollback: Rollback) => void;
  /** Called after a change was proven over new connections. */
  readonly onProven: () => void;
  /** Called once the state that an earlier agent left is known. */
  readonly onFound: () => void;
  /** Called when the effective configuration changed. */
  readonly onRelease: () => void;
  /** Called when the state of the window changed. */
  readonly onStanding: () => void;
}

/** State of the machine once all targets are reached. */
export type Verdict =
  | { readonly is: "as-applied" }
  | { readonly is: "not-yet"; readonly unreached: readonly Unreached[] }
  | { readonly is: "failed"; readonly failure: Failure };

/** Outcome of the confirm window after the last step of a pass. */
export type Settled =
  | { readonly is: "confirmed" | "trial" }
  | { readonly is: "failed"; readonly reason: RestoreReason; readonly failure?: Failure };

/** Time for a network to settle after a change before an unreachable target is evidence. */
const SETTLING_MS = 15_000;
const ATTEMPT_MS = 5000;
/** Shorter, so that evidence exists early. */
const FIRST_ATTEMPT_MS = 3000;
const EVERY_MS = 1000;
/** Age from which the start of the last attempt proves nothing about the end of a window. */
const STALE_MS = 15_000;
const LATE = new DOMException("no answer in time", "TimeoutError");

/** Confirmed commit of this machine: one window at a time, the last proven configuration, and the held change. */
export class Commit {
  readonly #options: CommitOptions;
  readonly heldChange: HeldChange;
  readonly #proven: ProvenRecord;
  #watcher: Watcher | undefined;
  #asked: "keep" | "revert" | undefined;
  /** True if a session opened since the last step. */
  #hasSession = false;
  /** Milliseconds since boot. */
  #appliedAt = 0;
  #unreached: readonly Unreached[] = [];
  /** Start of the last attempt; undefined before the first. Milliseconds since boot. */
  #triedAt: number | undefined;
  #lastRollback: Rollback | undefined;
  /** The pending change whose end is recorded. */
  #notedId: string | undefined;
  /** The decision to roll a trial back. An interrupted restore continues with the rollback, not with the trial. */
  #rollback: { readonly id: string; readonly reason: RestoreReason } | undefined;
  /** Sections of a change that could not be started. */
  #unopened: Guards = {};
  #isLoaded = false;
  /** True if the record of an interrupted change was damaged. */
  #isDistrustful = false;
  /** Cuts the current attempt, or the pause before the next one, short. */
  #nudge = new AbortController();

  constructor(options: CommitOptions) {
    this.#options = options;
    this.#proven = new ProvenRecord({ ...options, file: options.files.confirmed });
    this.heldChange = new HeldChange({ ...options, file: options.files.withheld });
  }

  /** The open window, if any. */
  get window(): Window | undefined {
    return this.#options.checkpoint.pending?.window;
  }

  get confirmed(): Confirmed {
    return this.#proven.confirmed;
  }

  /** Targets not reached yet while a change is being proven. */
  get unreached(): readonly Unreached[] {
    return this.#unreached;
  }

  /** The last change that was rolled back. */
  get lastRollback(): Rollback | undefined {
    return this.#lastRollback;
  }

  /** Milliseconds until the open window ends; undefined without one. */
  get leftMs(): number | undefined {
    return this.window === undefined ? undefined : leftOf(this.window, this.#now());
  }

  /** Sections that an operator confirmed on this machine in this boot, instead of the documents' own. */
  get kept(): Confirmed["kept"] {
    return this.#proven.kept;
  }

  /** Reports whether this value of a section is proven, so that applying it cannot cut the node off. */
  isProven(section: string, raw: unknown): boolean {
    const { window } = this;
    const trial = window?.state === "awaiting-keep" ? window.guards : {};
    if (Object.hasOwn(trial, section) && isSameValue(trial[section], raw)) return true;
    return this.#proven.has(section, raw) || this.#options.isGiven?.(section, raw) === true;
  }

  /**
   * Returns the value to apply for a section: the desired one, or the confirmed one while the desired one is held. If no value was ever
   * confirmed, the section stays in the state that the restore left.
   */
  effective(section: string, raw: unknown): { readonly value: unknown } | "unchanged" {
    return this.whyNot(section, raw) === undefined ? { value: raw } : (this.#proven.valueOf(section) ?? "unchanged");
  }

  /** Returns the proven value to apply for a section whose change could not start, if there is one. */
  insteadOf(section: string, raw: unknown): { readonly value: unknown } | undefined {
    const isUnopened = Object.hasOwn(this.#unopened, section) && isSameValue(this.#unopened[section], raw);
    return isUnopened ? this.#proven.valueOf(section) : undefined;
  }

  /** Returns why a desired value is not applied, or undefined. */
  whyNot(section: string, raw: unknown): string | undefined {
    const held = this.heldChange.reasonFor(section, raw);
    if (held !== undefined) return whyHeld(held);
    const isUntold = this.#isDistrustful && Object.hasOwn(this.confirmed.sections, section);
    if (!isUntold || this.isProven(section, raw)) return undefined;
    return "the record of an interrupted change was damaged; the confirmed configuration is applied until there is a session";
  }

  /** Records a value that the machine already has as proven. */
  async adopt(section: string, raw: unknown): Promise<void> {
    if (this.window === undefined) await this.#proven.adopt(section, raw);
  }

  /**
   * Opens the window of a pass: stores the undo of every step and starts the guard before the first step.
   * @throws {HostError} `busy` during a trial; errors of the disk or of the guard. Nothing may be applied then.
   */
  async open(entries: readonly Entry[], guards: Guards, versions: Versions, signal: AbortSignal): Promise<void> {
    const { checkpoint, clock, request, prover, owner } = this.#options;
    this.#unopened = {};
    if (this.window !== undefined)
      throw new HostError("busy", "another change is on trial; this one waits until it ends");
    this.#unopened = guards;
    const asked = request();
    const openedAt = clock.now();
    const { pid, startTicks } = owner;
    const before = this.heldChange.baselineFor(guards, prover.baseline());
    const about = { owner: { pid, startTicks }, before, versions, guards, isLocal: asked.isLocal };
    const window = openWindow(asked, about, openedAt, this.#now());
    await checkpoint.open(entries, openedAt, window);
    this.#asked = undefined;
    this.#unreached = [];
    this.#triedAt = undefined;
    try {
      this.#watcher = await this.#options.watch(checkpoint.pending?.id ?? "", asked.seconds * 1000, signal);
    } catch (error) {
      // No step has run, so rolling back a record that cannot be removed changes nothing.
      await checkpoint.abandon().catch(() => undefined);
      throw error;
    }
    this.#unopened = {};
    this.#options.onStanding();
  }

  /**
   * Decides after the last step; the pass waits until then. `observe` verifies that the proven state is the applied one. Rejects if
   * aborted: the window then stays for the next start.
   */
  async settle(isSuperseded: () => boolean, signal: AbortSignal, observe: () => Promise<Verdict>): Promise<Settled> {
    const { clock } = this.#options;
    this.#hasSession = false;
    this.#appliedAt = clock.sinceBoot();
    let end = await this.#after({ type: "applied" });
    while (end === undefined) {
      signal.throwIfAborted();
      end = (await this.#afterRequest(isSuperseded)) ?? (await this.#afterAttempt(observe, signal));
      if (this.window?.state === "awaiting-keep") return { is: "trial" };
      end ??= await this.#afterRequest(isSuperseded);
      if (end === undefined) await clock.sleep(EVERY_MS, this.#untilNudged(signal)).catch(() => undefined);
    }
    return end;
  }

  /** Returns why an open trial must end, or undefined. */
  async due(isSuperseded: () => boolean): Promise<RestoreReason | undefined> {
    if (this.window?.state !== "awaiting-keep") return undefined;
    const end = await this.#afterRequest(isSuperseded);
    return end?.is === "failed" ? end.reason : undefined;
  }

  /** True if a request to confirm or revert is waiting. */
  get isAsked(): boolean {
    return this.#asked !== undefined;
  }

  /** Wakes the waiting pass to re-evaluate: the desired state changed. */
  nudge(): void {
    this.#nudge.abort();
  }

  /** Requests to confirm or revert the pending change. @throws {InputError} `not-found`, `busy`. */
  ask(what: "keep" | "revert"): void {
    const { window } = this;
    if (window === undefined) throw new InputError("not-found", "no pending network change to confirm or revert");
    if (what === "keep" && this.#isRollbackDecided) throw new InputError("busy", "the change is being rolled back");
    if (what === "keep" && window.state === "applying")
      throw new InputError("busy", "the change is still being applied");
    this.#asked = what;
    this.nudge();
    this.#options.onStanding();
  }

  /** Handles a new session with the control plane. */
  sessionOpened(): void {
    this.#hasSession = true;
    this.nudge();
    this.heldChange.sessionOpened();
    if (!this.#isDistrustful) return;
    this.#isDistrustful = false;
    this.#options.onRelease();
  }

  /** Records why the open window ends, before the rollback. */
  async noteEnd(reason: RestoreReason, failure?: Failure): Promise<void> {
    const { window } = this;
    const id = this.#options.checkpoint.pending?.id;
    if (window === undefined || id === undefined) return;
    await this.#decideRollback(id, window, reason);
    if (reason === "superseded" || id === this.#notedId) return;
    this.#notedId = id;
    const { clock } = this.#options;
    const sinceTryMs = this.#triedAt === undefined ? undefined : clock.sinceBoot() - this.#triedAt;
    const isStale = sinceTryMs !== undefined && sinceTryMs > STALE_MS;
    const tried = sinceTryMs === undefined ? "never" : isStale ? "long-ago" : "lately";
    const about = { reason, failure, unreached: this.#unreached, tried, at: clock.now() } as const;
    await this.#note(window.guards, rollbackOf(window, about));
  }

  /** Rolls the pending change back. */
  async restore(sections: readonly Reconciler[], signal: AbortSignal): Promise<Restored> {
    const { alone, checkpoint, clock } = this.#options;
    const restorables = sections.map((section) => ({
      name: section.name,
      applyStored: (step: unknown, signal: AbortSignal) => {
        const bounds = { clock, ms: section.deadlineMs, what: `${section.name}: undo`, signal };
        return withinDeadline(bounds, (signal) => section.applyStored(step, signal));
      },
    }));
    const restored = await alone(() => checkpoint.restore(restorables, signal), signal);
    if (restored.failed.length > 0) return restored;
    await this.#unwatch();
    // The guard may have done it first.
    await this.takeGuardResult();
    const last = this.#lastRollback;
    if (last !== undefined) this.#lastRollback = { ...last, failed: failuresOf(restored) };
    this.heldChange.judge();
    this.#options.onStanding();
    return restored;
  }

  /** Finds a change that an earlier agent left: a trial continues, any other must be restored, a damaged one cannot be. */
  async find(): Promise<"nothing" | "to-restore" | "damaged"> {
    const found = await this.#find();
    this.#options.onFound();
    return found;
  }

  async #find(): Promise<"nothing" | "to-restore" | "damaged"> {
    if (!this.#isLoaded) await this.#load();
    await this.takeGuardResult();
    await this.#options.checkpoint.forgetTaken();
    const { pending, isDamaged, isTaken } = await this.#options.checkpoint.find();
    this.#isDistrustful ||= isDamaged;
    if (isDamaged) return "damaged";
    if (pending?.window === undefined) return pending === undefined ? "nothing" : "to-restore";
    const end = afterEvent(this.#decided(pending.window), { type: "found" }, this.#now());
    if (end.do === "restore" || isTaken) {
      // The attempts of an agent that ended are not known, except those in the window.
      const isKnown = end.do === "restore" && (end.reason !== "not-proven" || this.#triedAt !== undefined);
      await this.noteEnd(isKnown ? end.reason : "interrupted");
      return "to-restore";
    }
    const { pid, startTicks } = this.#options.owner;
    await this.#options.checkpoint.setWindow({ ...pending.window, owner: { pid, startTicks } });
    this.#options.log.info({ leftMs: this.leftMs }, "trial continues");
    return "nothing";
  }

  /** Reads and reports what the guard did instead of an agent. */
  async takeGuardResult(): Promise<void> {
    const { files, log } = this.#options;
    const result = valueOf(await files.guardResult.load());
    if (result === undefined) return;
    log.warn({ ...result.takenBack }, "the guard rolled a change back");
    if (result.id !== this.#notedId) await this.#note(result.guards, result.takenBack);
    this.#notedId = result.id;
    await files.guardResult.remove().catch((error: unknown) => log.warn({ err: toError(error) }, "not removed"));
  }

  /** Abandons a change that cannot be rolled back. */
  async abandon(): Promise<void> {
    await this.#options.checkpoint.abandon();
    await this.#unwatch();
  }

  close(): void {
    this.heldChange.close();
    this.nudge();
  }

  async #load(): Promise<void> {
    this.#isLoaded = true;
    await this.#proven.load();
    await this.heldChange.load();
    this.#lastRollback = this.heldChange.current?.last;
  }

  async #note(guards: Guards, last: Rollback): Promise<void> {
    this.#lastRollback = last;
    // A local trial is not held after its rollback.
    if (!last.isLocal) await this.heldChange.note(guards, last);
    this.#options.onRollback(last);
  }

  async #afterRequest(isSuperseded: () => boolean): Promise<Settled | undefined> {
    const asked = this.#asked;
    this.#asked = undefined;
    if (asked !== undefined) return this.#after({ type: asked });
    return this.#after({ type: isSuperseded() ? "superseded" : "tick" });
  }

  /**
   * Tries once to reach all targets. If none was reached before the change, a session since the change is required too; an older session
   * proves nothing, since its socket may predate the change.
   */
  async #afterAttempt(observe: () => Promise<Verdict>, signal: AbortSignal): Promise<Settled | undefined> {
    const { clock } = this.#options;
    const { window } = this;
    if (window === undefined) return undefined;
    if (!window.before.session && !this.#hasSession) {
      const message = "there was no session before the change, and none came";
      this.#tried([{ target: "control plane", message }], clock.sinceBoot());
      return undefined;
    }
    const from = clock.sinceBoot();
    const unreached = await this.#attempt(window, signal);
    if (unreached === undefined) return undefined;
    this.#tried(unreached, from);
    if (unreached.length === 0) {
      const verdict = await verdictOf(observe, signal);
      if (verdict.is === "as-applied") return this.#after({ type: "proved" });
      if (verdict.is === "failed") return { is: "failed", reason: "step-failed", failure: verdict.failure };
      this.#tried(verdict.unreached, clock.sinceBoot());
      return undefined;
    }
    // Stored for the guard or a later agent; a network needs time to settle after a change.
    if (window.unreached === undefined && clock.sinceBoot() >= this.#appliedAt + SETTLING_MS) {
      await this.#options.checkpoint.setWindow({ ...window, unreached: evidenceText(unreached) });
    }
    return undefined;
  }

  #tried(unreached: readonly Unreached[], from: number): void {
    this.#unreached = unreached;
    this.#triedAt = from;
  }

  /** Tries once to reach all targets; undefined if it was cut short. */
  async #attempt(window: Window, signal: AbortSignal): Promise<readonly Unreached[] | undefined> {
    const { prover, clock } = this.#options;
    signal.throwIfAborted();
    const cut = this.#untilNudged(signal);
    const late = new AbortController();
    const attemptMs = Math.min(window.unreached === undefined ? FIRST_ATTEMPT_MS : ATTEMPT_MS, this.leftMs ?? 0);
    const cancel = clock.after(attemptMs, () => late.abort(LATE));
    const unreached = await prover.attempt(window.before, AbortSignal.any([cut, late.signal])).finally(cancel);
    return cut.aborted ? undefined : unreached;
  }

  /** Returns a signal that aborts with the given one, or with the next nudge. */
  #untilNudged(signal: AbortSignal): AbortSignal {
    this.#nudge = new AbortController();
    return AbortSignal.any([signal, this.#nudge.signal]);
  }

  async #after(event: WindowEvent): Promise<Settled | undefined> {
    const { window } = this;
    if (window === undefined) throw new HostError("checkpoint-taken", "the guard rolled the change back");
    const end: WindowEnd = afterEvent(this.#decided(window), event, this.#now());
    switch (end.do) {
      case "nothing":
        return undefined;
      case "store":
        await this.#options.checkpoint.setWindow(end.window);
        if (event.type === "proved") this.#options.onProven();
        this.#options.onStanding();
        return undefined;
      case "confirm":
        await this.#confirm(window);
        if (event.type === "proved") this.#options.onProven();
        return { is: "confirmed" };
      case "restore":
        return { is: "failed", reason: end.reason };
    }
  }

  async #confirm(window: Window): Promise<void> {
    const { checkpoint, log } = this.#options;
    const { guards, versions, isLocal } = window;
    await checkpoint.confirm();
    await this.#proven.confirm(window);
    await this.heldChange.forget(guards);
    await this.#unwatch();
    log.info({ versions, isLocal }, "change confirmed");
    this.#options.onStanding();
  }

  /** True if the pending change is being rolled back. */
  get #isRollbackDecided(): boolean {
    return this.#rollback !== undefined && this.#rollback.id === this.#options.checkpoint.pending?.id;
  }

  /** Stores the decision, in memory if the disk refuses. An earlier decision stays. */
  async #decideRollback(id: string, window: Window, reason: RestoreReason): Promise<void> {
    if (window.state !== "awaiting-keep" || this.#isRollbackDecided) return;
    this.#rollback = { id, reason };
    const { checkpoint, log } = this.#options;
    await checkpoint.setWindow({ ...window, ending: reason }).catch((error: unknown) => {
      log.warn({ err: toError(error) }, "not saved");
    });
  }

  /** Returns the pending window with the decision to roll it back, if there is one. */
  #decided(window: Window): Window {
    return this.#isRollbackDecided ? { ...window, ending: this.#rollback?.reason } : window;
  }

  async #unwatch(): Promise<void> {
    const watcher = this.#watcher;
    this.#watcher = undefined;
    this.#unreached = [];
    await watcher?.end();
  }

  #now(): Moment {
    return { bootId: this.#options.bootId, sinceBoot: this.#options.clock.sinceBoot() };
  }
}

/** Observes the machine; a failure means not yet proven. Rejects if aborted, or if another process took the change. */
async function verdictOf(observe: () => Promise<Verdict>, signal: AbortSignal): Promise<Verdict> {
  try {
    return await observe();
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof HostError && error.code === "checkpoint-taken") throw error;
    return { is: "not-yet", unreached: [{ target: "this machine", message: toError(error).message, isHere: true }] };
  }
}
