import { HostError, InputError, toError } from "../../errors.ts";
import type { Entry, Restorable, Restored } from "../../checkpoint/checkpoint.ts";
import type { Confirmed, TakenBack } from "../../checkpoint/commit-files.ts";
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
} from "../../checkpoint/window.ts";
import { valueOf } from "../../host/files/state-file.ts";
import type { CommitOptions, Watcher } from "./commit-options.ts";
import { Ending } from "./ending.ts";
import { evidenceText, type Unreached } from "./prover.ts";
import { ProvenRecord } from "./proven-record.ts";
import { takenBackBy } from "./taken-back.ts";
import { judged, pause, tryOnce, type Verdict } from "./trying.ts";
import type { Failure } from "./turn.ts";
import { isSameValue, whyHeld, Withholding, type Guards } from "./withholding.ts";
import type { Versions } from "./work.ts";

/** How the last step of a pass was followed. */
export type Settled =
  | { readonly is: "confirmed" | "trial" }
  | { readonly is: "failed"; readonly reason: RestoreReason; readonly failure?: Failure };

/** How long a network may take after a change before nobody being reached says something about it. */
const SETTLING_MS = 15_000;

/** The confirmed commit of this machine: one window at a time, what was last proven, and what is kept back. */
export class Commit {
  readonly #options: CommitOptions;
  readonly withholding: Withholding;
  readonly #proven: ProvenRecord;
  #watcher: Watcher | undefined;
  #asked: "keep" | "revert" | undefined;
  /** A session was opened since the last step was taken. */
  #hasSession = false;
  /** Milliseconds since boot. */
  #appliedAt = 0;
  #unreached: readonly Unreached[] = [];
  #lastTakenBack: TakenBack | undefined;
  /** The pending change whose end was noted. */
  #notedId: string | undefined;
  readonly #ending: Ending;
  /** The sections of a change that could not even be begun. */
  #unopened: Guards = {};
  #isLoaded = false;
  /** What was being changed when the last agent ended cannot be told. */
  #isDistrustful = false;
  #ring: () => void = () => undefined;

  constructor(options: CommitOptions) {
    this.#options = options;
    const { clock, log, files, bootId, prover, original, refuse, onRelease } = options;
    this.#ending = new Ending({ checkpoint: options.checkpoint, log });
    this.#proven = new ProvenRecord({ clock, log, bootId, file: files.confirmed, original });
    this.withholding = new Withholding({
      clock,
      log,
      file: files.withheld,
      prover,
      refuse: ({ last, guards }) => refuse(last, guards),
      onRelease,
    });
  }

  /** The window that is open, while there is one. */
  get window(): Window | undefined {
    return this.#options.checkpoint.pending?.window;
  }

  get confirmed(): Confirmed {
    return this.#proven.confirmed;
  }

  /** What is not reached yet, while the change is being proven. */
  get unreached(): readonly Unreached[] {
    return this.#unreached;
  }

  /** The last change that was taken back. */
  get lastTakenBack(): TakenBack | undefined {
    return this.#lastTakenBack;
  }

  /** Milliseconds until the open window ends; undefined when there is none. */
  get leftMs(): number | undefined {
    return this.window === undefined ? undefined : leftOf(this.window, this.#now());
  }

  /** The sections that were kept on this machine in the place of the documents' own, in this boot. */
  get kept(): Confirmed["kept"] {
    return this.#proven.kept;
  }

  /** Whether this value of a section was proven before; putting it in force cannot cut the node off any more than it is. */
  isProven(section: string, raw: unknown): boolean {
    const { window } = this;
    const trial = window?.state === "awaiting-keep" ? window.guards : {};
    if (Object.hasOwn(trial, section) && isSameValue(trial[section], raw)) return true;
    return this.#proven.has(section, raw) || this.#options.isGiven?.(section, raw) === true;
  }

  /**
   * What to do about a section: apply the desired value, or while that is kept back what was confirmed before. Where nothing ever was, the
   * section rests: what it has is what the restore left.
   */
  effective(section: string, raw: unknown): { readonly value: unknown } | "rest" {
    return this.whyNot(section, raw) === undefined ? { value: raw } : (this.#proven.valueOf(section) ?? "rest");
  }

  /** What to have in force of a section whose change could not be begun: what was proven before, if anything was. */
  insteadOf(section: string, raw: unknown): { readonly value: unknown } | undefined {
    const isUnopened = Object.hasOwn(this.#unopened, section) && isSameValue(this.#unopened[section], raw);
    return isUnopened ? this.#proven.valueOf(section) : undefined;
  }

  /** Why a desired value is not applied; undefined when it is. */
  whyNot(section: string, raw: unknown): string | undefined {
    const held = this.withholding.reasonFor(section, raw);
    if (held !== undefined) return whyHeld(held);
    const isUntold = this.#isDistrustful && Object.hasOwn(this.confirmed.sections, section);
    if (!isUntold || this.isProven(section, raw)) return undefined;
    return "the record of a change that was cut short was damaged; what was confirmed before is in force until there is a session";
  }

  /** Notes what the machine has without a change: it was there already. */
  async adopt(section: string, raw: unknown): Promise<void> {
    if (this.window === undefined) await this.#proven.adopt(section, raw);
  }

  /**
   * Opens the window of a pass: the undo of every step is on disk and somebody watches before the first is taken.
   * @throws {HostError} `busy` while a trial lasts; when the disk refuses, or nobody can watch. Then nothing may be applied.
   */
  async open(entries: readonly Entry[], guards: Guards, versions: Versions, signal: AbortSignal): Promise<void> {
    const { checkpoint, clock, request, prover, owner } = this.#options;
    this.#unopened = {};
    if (this.window !== undefined)
      throw new HostError("busy", "another change is being tried; this one waits for its end");
    this.#unopened = guards;
    const asked = request();
    const openedAt = clock.now();
    const { pid, startTicks } = owner;
    const about = { owner: { pid, startTicks }, before: prover.before(), versions, guards, isLocal: asked.isLocal };
    const window = openWindow(asked, about, openedAt, this.#now());
    await checkpoint.open(entries, openedAt, window);
    this.#asked = undefined;
    this.#unreached = [];
    try {
      this.#watcher = await this.#options.watch(checkpoint.pending?.id ?? "", asked.seconds * 1000, signal);
    } catch (error) {
      // Nothing was begun, so that a record which the disk does not let go of takes nothing back.
      await checkpoint.abandon().catch(() => undefined);
      throw error;
    }
    this.#unopened = {};
    this.#options.onStanding();
  }

  /**
   * Decides after the last step; until then the pass waits. What is proven must be what was applied: `look` says whether it is.
   * Rejects when aborted: the window then stays for the next start.
   */
  async settle(
    isSuperseded: () => boolean,
    signal: AbortSignal,
    look: () => Promise<Verdict> = () => Promise.resolve({ is: "as-applied" }),
  ): Promise<Settled> {
    const { clock } = this.#options;
    this.#hasSession = false;
    this.#appliedAt = clock.sinceBoot();
    let end = await this.#after({ type: "applied" });
    while (end === undefined) {
      signal.throwIfAborted();
      end = (await this.#afterAsking(isSuperseded)) ?? (await this.#afterTrying(look, signal));
      if (this.window?.state === "awaiting-keep") return { is: "trial" };
      end ??= await this.#afterAsking(isSuperseded);
      if (end === undefined) await pause(clock, (ring) => (this.#ring = ring), signal);
    }
    return end;
  }

  /** Why an open trial must end; undefined while it goes on. */
  async due(isSuperseded: () => boolean): Promise<RestoreReason | undefined> {
    if (this.window?.state !== "awaiting-keep") return undefined;
    const end = await this.#afterAsking(isSuperseded);
    return end?.is === "failed" ? end.reason : undefined;
  }

  /** Whether somebody asked for the end of a trial and has no answer yet. */
  get isAsked(): boolean {
    return this.#asked !== undefined;
  }

  /** Has whoever waits look again: something newer is desired. */
  nudge(): void {
    this.#ring();
  }

  /** Keeps the change that is being tried or proven, or takes it back at once. @throws {InputError} `not-found`, `busy`. */
  ask(what: "keep" | "revert"): void {
    const { window } = this;
    if (window === undefined) throw new InputError("not-found", "no change waits for being kept or taken back");
    if (what === "keep" && this.#ending.isDecided) throw new InputError("busy", "the change is being taken back");
    if (what === "keep" && window.state === "applying")
      throw new InputError("busy", "the change is still being applied");
    this.#asked = what;
    this.#ring();
    this.#options.onStanding();
  }

  /** A session with the control plane was opened. */
  sessionOpened(): void {
    this.#hasSession = true;
    this.#ring();
    this.withholding.sessionOpened();
    if (!this.#isDistrustful) return;
    this.#isDistrustful = false;
    this.#options.onRelease();
  }

  /** Says why the open window ends, before anything is taken back. */
  async noteEnd(reason: RestoreReason, failure?: Failure): Promise<void> {
    const { window } = this;
    const id = this.#options.checkpoint.pending?.id;
    if (window === undefined || id === undefined) return;
    await this.#ending.decide(id, window, reason);
    if (reason === "superseded" || id === this.#notedId) return;
    this.#notedId = id;
    const about = { reason, failure, unreached: this.#unreached, at: this.#options.clock.now() };
    await this.#note(window.guards, takenBackBy(window, about));
  }

  /** Takes back what is pending. */
  async restore(restorables: readonly Restorable[], signal: AbortSignal): Promise<Restored> {
    const { alone, checkpoint } = this.#options;
    const restored = await alone(() => checkpoint.restore(restorables, signal), signal);
    if (restored.failed.length > 0) return restored;
    await this.#unwatch();
    // The guard may have been quicker.
    await this.takeGuardResult();
    const last = this.#lastTakenBack;
    if (last !== undefined) this.#lastTakenBack = { ...last, failed: failuresOf(restored) };
    this.withholding.judge();
    this.#options.onStanding();
    return restored;
  }

  /** Looks for a change that another agent left: a trial goes on, any other is to be restored, and one that is damaged cannot be. */
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
    const end = afterEvent(this.#ending.of(pending.window), { type: "found" }, this.#now());
    if (end.do === "restore" || isTaken) {
      await this.noteEnd(end.do === "restore" ? end.reason : "interrupted");
      return "to-restore";
    }
    const { pid, startTicks } = this.#options.owner;
    await this.#options.checkpoint.setWindow({ ...pending.window, owner: { pid, startTicks } });
    this.#options.log.info({ leftMs: this.leftMs }, "a trial goes on");
    return "nothing";
  }

  /** Reads what the guard did in the place of an agent that could not, and has it reported. */
  async takeGuardResult(): Promise<void> {
    const { files, log } = this.#options;
    const result = valueOf(await files.guardResult.load());
    if (result === undefined) return;
    log.warn({ ...result.takenBack }, "the guard has taken a change back");
    if (result.id !== this.#notedId) await this.#note(result.guards, result.takenBack);
    this.#notedId = result.id;
    await files.guardResult.remove().catch((error: unknown) => log.warn({ err: toError(error) }, "not removed"));
  }

  /** Gives up on a change that cannot be taken back. */
  async abandon(): Promise<void> {
    await this.#options.checkpoint.abandon();
    await this.#unwatch();
  }

  close(): void {
    this.withholding.close();
    this.#ring();
  }

  async #load(): Promise<void> {
    this.#isLoaded = true;
    await this.#proven.load();
    await this.withholding.load();
    this.#lastTakenBack = this.withholding.held?.last;
  }

  async #note(guards: Guards, last: TakenBack): Promise<void> {
    this.#lastTakenBack = last;
    // What is tried on this machine is gone once it is taken back.
    if (!last.isLocal) await this.withholding.note(guards, last);
    this.#options.onTakenBack(last);
  }

  async #afterAsking(isSuperseded: () => boolean): Promise<Settled | undefined> {
    const asked = this.#asked;
    this.#asked = undefined;
    if (asked !== undefined) return this.#after({ type: asked });
    return this.#after({ type: isSuperseded() ? "superseded" : "tick" });
  }

  /**
   * Tries once to reach whom it must. Where nobody was reached before, there must also be a session since: one alone proves nothing, as its
   * socket may be older than the change.
   */
  async #afterTrying(look: () => Promise<Verdict>, signal: AbortSignal): Promise<Settled | undefined> {
    const { prover, clock } = this.#options;
    const { window } = this;
    if (window === undefined) return undefined;
    if (!window.before.session && !this.#hasSession) {
      this.#unreached = [{ target: "control plane", message: "there was no session before the change, and none came" }];
      return undefined;
    }
    const about = { prover, clock, window, leftMs: this.leftMs ?? 0 };
    const unreached = await tryOnce(about, (ring) => (this.#ring = ring), signal);
    if (unreached === undefined) return undefined;
    this.#unreached = unreached;
    if (unreached.length === 0) {
      const verdict = await judged(look, signal);
      if (verdict.is === "as-applied") return this.#after({ type: "proved" });
      if (verdict.is === "failed") return { is: "failed", reason: "step-failed", failure: verdict.failure };
      this.#unreached = verdict.unreached;
      return undefined;
    }
    // For whoever has to judge it should this agent end; a network that has just changed may take its time.
    if (window.unreached === undefined && clock.sinceBoot() >= this.#appliedAt + SETTLING_MS) {
      await this.#options.checkpoint.setWindow({ ...window, unreached: evidenceText(unreached) });
    }
    return undefined;
  }

  async #after(event: WindowEvent): Promise<Settled | undefined> {
    const { window } = this;
    if (window === undefined) throw new HostError("checkpoint-taken", "the change was taken back by the guard");
    const end: WindowEnd = afterEvent(this.#ending.of(window), event, this.#now());
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
    await this.withholding.forget(guards);
    await this.#unwatch();
    log.info({ versions, isLocal }, "change confirmed");
    this.#options.onStanding();
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
