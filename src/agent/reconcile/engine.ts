import { HostError, InputError, toError } from "../../errors.ts";
import type { Restored } from "../../checkpoint/checkpoint.ts";
import type { RestoreReason } from "../../checkpoint/window.ts";
import { backoff, jitter, type Random } from "../../lib/async/backoff.ts";
import { wallTimes, type WallTimes } from "../../host/clock.ts";
import type { SectionPlan } from "../../protocol/documents/reconcile.ts";
import { runPass, type PassParts } from "./pass.ts";
import { preview } from "./preview.ts";
import type { Reconciler } from "./section.ts";
import { movedInTime, standingAfter, type Standing } from "./section-status.ts";
import { isSameValue, type PassResult, type SectionResult, type Work, type Versions } from "./work.ts";

/** Desired state of the machine: the effective sections and the versions of their documents. */
export interface DesiredState {
  readonly version: Versions;
  readonly config: Readonly<Record<string, unknown>>;
  /** If false, sections that need the data plane get an empty desired value. */
  readonly isActive: boolean;
}

export interface EngineOptions extends PassParts {
  readonly random: Random;
  /** Sections in the order of their dependencies. */
  readonly sections: readonly Reconciler[];
  /** Called after each pass and each restore of a checkpoint. */
  readonly onReport: () => void;
  /** Called with faults for operators: a checkpoint that was restored or could not be. */
  readonly onFault: (code: string, message: string) => void;
}

const DRIFT_MS = 60_000;
const RETRY = { firstMs: 1000, maxMs: 300_000 };
const MAX_RESTORES = 3;
const MAX_LAST_RESTORES = 10;

interface Track {
  /** State with times of the monotonic clock. */
  standing?: Standing;
  /** The same state in wall time, cached until the wall clock is set. */
  shown?: { readonly of: Standing; readonly ahead: number; readonly standing: Standing };
  /** Desired value, as JSON, that the machine last converged to. */
  reached?: string | undefined;
  /** Desired value of the last pass, as JSON. */
  desired?: { readonly raw: unknown; readonly json: string };
  /** Time by the monotonic clock. */
  retryAt?: number | undefined;
}

/** Reconciles the machine with the desired state: one pass at a time, each from the observed state to the newest desired one. */
export class Engine {
  readonly #options: EngineOptions;
  readonly #wall: WallTimes;
  readonly #tracks = new Map<string, Track>();
  readonly #ending = new AbortController();
  readonly #wanted = new Set<string>();
  #desired: DesiredState | undefined;
  #generation = 0;
  #running: Promise<void> | undefined;
  #isStarted = false;
  #restore: { readonly attempts: number; readonly at: number } | undefined = { attempts: 0, at: 0 };
  #driftAt: number;
  #cancelTimer: () => void = () => undefined;

  constructor(options: EngineOptions) {
    this.#options = options;
    this.#wall = wallTimes(options.clock);
    for (const { name } of options.sections) this.#tracks.set(name, {});
    this.#driftAt = options.clock.elapsed() + DRIFT_MS;
  }

  /** Names of its sections. */
  get names(): readonly string[] {
    return this.#options.sections.map(({ name }) => name);
  }

  /** States of all sections that were tried; times in Unix milliseconds. */
  get standings(): readonly Standing[] {
    const { ahead } = this.#wall;
    return [...this.#tracks.values()].flatMap((track) => {
      const { standing: of } = track;
      if (of === undefined) return [];
      if (track.shown?.of !== of || track.shown.ahead !== ahead)
        track.shown = { of, ahead, standing: movedInTime(of, ahead) };
      return [track.shown.standing];
    });
  }

  /** Rolls back an interrupted change, then starts passes. */
  start(): void {
    this.#isStarted = true;
    this.#kick();
  }

  /** Sets the desired state; a running pass for an older one stops after its current step. */
  set(desired: DesiredState): void {
    this.#desired = desired;
    this.#generation += 1;
    this.#options.commit.nudge();
    this.#want(this.names);
  }

  /** Re-evaluates the named sections, or all, at once: something they depend on or own may have changed. */
  reevaluate(reason: string, names: readonly string[] = this.names): void {
    this.#options.log.debug({ reason, sections: names }, "re-evaluating");
    this.#want(names);
  }

  /** Confirms the pending change. @throws {InputError} `not-found`, `busy`. */
  async keep(): Promise<void> {
    this.#options.commit.ask("keep");
    this.#kick();
    await this.idle();
  }

  /** Rolls the pending change back; resolves once done. @throws {InputError} `not-found`. */
  async revert(): Promise<void> {
    this.#options.commit.ask("revert");
    this.#kick();
    await this.idle();
  }

  /** Returns the steps that a configuration would take, by other sections if their surroundings differ. Changes nothing. */
  preview(
    config: DesiredState["config"],
    isActive: boolean,
    signal: AbortSignal,
    sections: readonly Reconciler[] = this.#options.sections,
  ): Promise<SectionPlan[]> {
    const desired = { version: {}, config, isActive };
    const work = sections.map((section) => ({ section, raw: rawOf(section, desired) }));
    return preview(work, this.#options.clock, AbortSignal.any([signal, this.#ending.signal]));
  }

  /** Resolves when no pass is running or due. */
  async idle(): Promise<void> {
    while (this.#running !== undefined) await this.#running;
  }

  /** Aborts the current step; an open checkpoint stays for the next start. */
  async close(): Promise<void> {
    this.#ending.abort(new InputError("cancelled", "the agent is stopping"));
    this.#cancelTimer();
    await this.idle();
  }

  #want(names: readonly string[]): void {
    for (const name of names) if (this.#tracks.has(name)) this.#wanted.add(name);
    this.#kick();
  }

  #kick(): void {
    if (!this.#isStarted || this.#running !== undefined || this.#ending.signal.aborted) return;
    this.#running = this.#run()
      .catch((error: unknown) => {
        if (!this.#ending.signal.aborted) this.#options.log.error({ err: toError(error) }, "pass failed");
      })
      .finally(() => {
        this.#running = undefined;
        this.#arm();
      });
  }

  async #run(): Promise<void> {
    this.#cancelTimer();
    // Several changes in one tick get one pass.
    await Promise.resolve();
    while (!this.#ending.signal.aborted) {
      if (this.#restore !== undefined && !(await this.#restorePending(this.#restore))) return;
      const reason = await this.#options.commit.due(() => this.#isSuperseded());
      if (reason !== undefined && !(await this.#endTrial(reason))) return;
      const desired = this.#desired;
      if (desired === undefined || this.#wanted.size === 0) return;
      await this.#pass(desired);
    }
  }

  async #pass(desired: DesiredState): Promise<void> {
    const { sections, clock, commit, log } = this.#options;
    const generation = this.#generation;
    const wanted = sections.filter(({ name }) => this.#wanted.has(name));
    this.#wanted.clear();
    const work = wanted.flatMap((section): Work[] => {
      const effective = commit.effective(section.name, rawOf(section, desired));
      return effective === "unchanged" ? [] : [{ section, raw: effective.value }];
    });
    for (const { section, raw } of work) {
      const track = this.#track(section.name);
      track.retryAt = undefined;
      // Differences from here on may be our own.
      if (track.reached !== jsonOf(track, raw)) track.reached = undefined;
    }
    const signal = this.#ending.signal;
    const isStale = (): boolean => this.#generation !== generation || signal.aborted;
    let result: PassResult;
    try {
      const isSuperseded = (): boolean => this.#generation !== generation && this.#isSuperseded();
      const options = { ...this.#options, versions: desired.version, isStale, isSuperseded, signal };
      result = await runPass(work, options);
      // A change that cannot start must not keep the machine from the proven configuration, above all right after boot.
      const instead = work.flatMap(({ section, raw }): Work[] => {
        const proven = result.end === "done" ? commit.insteadOf(section.name, raw) : undefined;
        return proven === undefined ? [] : [{ section, raw: proven.value }];
      });
      if (instead.length > 0) await runPass(instead, options);
    } catch (error) {
      signal.throwIfAborted();
      // The disk refused midway: the pending change is rolled back before the next pass.
      log.error({ err: toError(error) }, "pass interrupted");
      for (const { name } of wanted) this.#wanted.add(name);
      this.#restore = { attempts: 0, at: clock.elapsed() + this.#retryAfter(1) };
      return;
    }
    if (result.restored !== undefined) this.#restored(result.restored, result.evidence);
    if (result.end === "done") await this.#adopt(result, work);
    if (result.end !== "stale") this.#take(result, work, desired);
    for (const section of wanted) if (work.every((one) => one.section !== section)) this.#unchanged(section, desired);
    if (result.end !== "stale" || result.restored !== undefined) this.#options.onReport();
  }

  /** Records values that needed no step as proven. */
  async #adopt({ results }: PassResult, work: readonly Work[]): Promise<void> {
    for (const { section, raw } of work) {
      const result = results.find(({ name }) => name === section.name);
      if (!section.canCutOff || result?.outcome.state !== "converged" || result.planned.length > 0) continue;
      await this.#options.commit.adopt(section.name, raw);
    }
  }

  /** Reports whether the desired value of a section on trial has changed. */
  #isSuperseded(): boolean {
    const desired = this.#desired;
    const guards = this.#options.commit.window?.guards ?? {};
    if (desired === undefined) return false;
    const { sections } = this.#options;
    return Object.entries(guards).some(([name, raw]) => {
      const section = sections.find((one) => one.name === name);
      return section !== undefined && !isSameValue(raw, rawOf(section, desired));
    });
  }

  /** Rolls a trial back; resolves to whether nothing is pending. */
  async #endTrial(reason: RestoreReason): Promise<boolean> {
    const { commit, clock, sections, log } = this.#options;
    await commit.noteEnd(reason);
    const restored = await commit.restore(sections, this.#ending.signal).catch((error: unknown) => {
      this.#ending.signal.throwIfAborted();
      log.error({ err: toError(error) }, "trial could not be rolled back");
      return undefined;
    });
    if (restored === undefined) {
      this.#restore = { attempts: 0, at: clock.elapsed() + this.#retryAfter(1) };
      return false;
    }
    this.#restored(restored, commit.lastRollback?.evidence);
    for (const name of this.names) this.#wanted.add(name);
    this.#options.onReport();
    return this.#restore === undefined;
  }

  #take({ results }: PassResult, work: readonly Work[], desired: DesiredState): void {
    for (const { section, raw } of work) {
      const result = results.find(({ name }) => name === section.name);
      // A section rolled back with another section's failure is retried without that section.
      if (result === undefined) this.#wanted.add(section.name);
      else
        this.#answer(this.#withheld(section, result, desired), jsonOf(this.#track(section.name), raw), desired.version);
    }
  }

  /** Reports a section that stays as it is, since no confirmed value exists. */
  #unchanged(section: Reconciler, desired: DesiredState): void {
    const result: SectionResult = { name: section.name, outcome: { state: "converged" }, planned: [], steps: 0 };
    this.#answer(this.#withheld(section, result, desired), "", desired.version);
  }

  /** Reports a held section as failed, regardless of the configuration applied instead. */
  #withheld(section: Reconciler, result: SectionResult, desired: DesiredState): SectionResult {
    const reason = this.#options.commit.whyNot(section.name, rawOf(section, desired));
    if (reason === undefined || result.outcome.state !== "converged") return result;
    // The evaluated items belong to another value.
    const { rejected: _rejected, notices: _notices, ...rest } = result;
    return { ...rest, outcome: { state: "failed", error: new HostError("not-confirmed", reason) } };
  }

  #answer(result: SectionResult, raw: string, version: Versions): void {
    const { clock, log } = this.#options;
    const track = this.#track(result.name);
    const isDrift = track.reached === raw;
    const now = clock.elapsed();
    const standing = standingAfter(track.standing, result, { version, now, isDrift });
    const { state } = result.outcome;
    if (isDrift && result.planned.length > 0) {
      log.warn({ section: result.name, what: standing.drift.what }, "drift corrected");
    }
    if (state === "converged" || state === "pending") track.reached = raw;
    if (standing.failures === 0) {
      track.retryAt = undefined;
      track.standing = standing;
    } else {
      const delayMs = this.#retryAfter(standing.failures);
      track.retryAt = now + delayMs;
      track.standing = { ...standing, nextAttempt: track.retryAt };
    }
  }

  /** Rolls back the change that an earlier agent or a failed pass left; resolves to whether none is pending. */
  async #restorePending({ attempts, at }: { readonly attempts: number; readonly at: number }): Promise<boolean> {
    const { commit, clock, sections, log } = this.#options;
    if (clock.elapsed() < at) return false;
    try {
      if (attempts === 0) {
        const found = await commit.find();
        if (found !== "to-restore") {
          this.#restore = undefined;
          if (found === "damaged") this.#restored({ undone: 0, failed: [], isDamaged: true }, undefined);
          return true;
        }
      }
      const restored = await commit.restore(sections, this.#ending.signal);
      this.#restore = undefined;
      if (restored.undone > 0 || restored.failed.length > 0 || restored.isDamaged) this.#restored(restored, undefined);
      if (restored.failed.length === 0) return true;
    } catch (error) {
      this.#ending.signal.throwIfAborted();
      log.error({ err: toError(error) }, "pending change could not be rolled back");
    }
    if (attempts + 1 >= this.#maxRestores) {
      this.#options.onFault("restore-failed", "an interrupted change could not be rolled back; continuing without");
      await commit.abandon().catch((error: unknown) => log.error({ err: toError(error) }, "checkpoint not removed"));
      this.#restore = undefined;
      return true;
    }
    this.#restore = { attempts: attempts + 1, at: clock.elapsed() + this.#retryAfter(attempts + 1) };
    return false;
  }

  /** Attempts of a restore; more if no proven configuration exists to fall back on. */
  get #maxRestores(): number {
    const { window, confirmed } = this.#options.commit;
    const names = Object.keys(window?.guards ?? {});
    return names.every((name) => Object.hasOwn(confirmed.sections, name)) ? MAX_RESTORES : MAX_LAST_RESTORES;
  }

  #restored({ undone, failed, isDamaged }: Restored, evidence: string | undefined): void {
    const { log, onFault } = this.#options;
    if (isDamaged) onFault("damaged-file", "the checkpoint of an interrupted change was damaged; it was set aside");
    log.warn(
      { undone, failed: failed.map(({ section, error }) => `${section}: ${error.message}`), evidence },
      "restored",
    );
    if (failed.length > 0) this.#restore = { attempts: 0, at: 0 };
  }

  /** Sets the one timer for the next retry, restore, end of a trial or check for drift. */
  #arm(): void {
    this.#cancelTimer();
    if (this.#ending.signal.aborted) return;
    const { clock, commit } = this.#options;
    const isDue = commit.isAsked || (this.#desired !== undefined && this.#wanted.size > 0);
    if (this.#restore === undefined && isDue) return this.#kick();
    const retries = [...this.#tracks.values()].flatMap(({ retryAt }) => retryAt ?? []);
    const trialEnd = commit.leftMs === undefined ? [] : [clock.elapsed() + commit.leftMs];
    const times = this.#restore === undefined ? [this.#driftAt, ...retries, ...trialEnd] : [this.#restore.at];
    const delayMs = Math.max(0, Math.min(...times) - clock.elapsed());
    this.#cancelTimer = clock.after(delayMs, () => this.#ring());
  }

  #ring(): void {
    const now = this.#options.clock.elapsed();
    const isDriftDue = now >= this.#driftAt;
    if (isDriftDue) this.#driftAt = now + DRIFT_MS;
    // An open window is handled before passes.
    if (this.#options.commit.window !== undefined) this.#kick();
    const due = [...this.#tracks].filter(([, { retryAt }]) => (retryAt === undefined ? isDriftDue : retryAt <= now));
    this.#want(due.map(([name]) => name));
  }

  /** Returns the delay after the n-th consecutive failure, in milliseconds. */
  #retryAfter(failures: number): number {
    return jitter(backoff(failures, RETRY), [0.5, 1], this.#options.random);
  }

  #track(name: string): Track {
    const track = this.#tracks.get(name) ?? {};
    this.#tracks.set(name, track);
    return track;
  }
}

function rawOf(section: Reconciler, { config, isActive }: DesiredState): unknown {
  return section.needsDataPlane && !isActive ? undefined : config[section.name];
}

function jsonOf(track: Track, raw: unknown): string {
  if (track.desired === undefined || track.desired.raw !== raw) {
    track.desired = { raw, json: JSON.stringify(raw) ?? "" };
  }
  return track.desired.json;
}
