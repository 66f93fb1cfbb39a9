import { HostError, InputError, toError } from "../../errors.ts";
import type { Entry, Restorable, Restored } from "../../checkpoint/checkpoint.ts";
import type { Confirmed, TakenBack } from "../../checkpoint/commit-files.ts";
import { failuresOf } from "../../checkpoint/restore-pending.ts";
import {
  afterEvent,
  leftOf,
  type Moment,
  type RestoreReason,
  type Window,
  type WindowEnd,
  type WindowEvent,
} from "../../checkpoint/window.ts";
import { valueOf } from "../../host/state-file.ts";
import type { CommitOptions, Watcher } from "./commit-options.ts";
import { endText, MAX_EVIDENCE, type Unreached } from "./prover.ts";
import type { Step } from "./section.ts";
import type { Versions } from "./standing.ts";
import { isSameValue, Withholding, type Guards } from "./withholding.ts";

/** How the last step of a pass was followed. */
export type Settled =
  | { readonly is: "confirmed" | "trial" }
  | { readonly is: "failed"; readonly reason: RestoreReason };

const ATTEMPT_MS = 5000;
const EVERY_MS = 1000;

/** The confirmed commit of this machine: one window at a time, what was last proven, and what is kept back. */
export class Commit {
  readonly #options: CommitOptions;
  readonly withholding: Withholding;
  #confirmed: Confirmed = { sections: {}, versions: {} };
  #watcher: Watcher | undefined;
  #asked: "keep" | "revert" | undefined;
  /** A session was opened since the last step was taken. */
  #hasSession = false;
  #unreached: readonly Unreached[] = [];
  #lastTakenBack: TakenBack | undefined;
  /** The pending change whose end was noted. */
  #notedId: string | undefined;
  #isLoaded = false;
  /** What was being changed when the last agent ended cannot be told. */
  #isDistrustful = false;
  #ring: () => void = () => undefined;

  constructor(options: CommitOptions) {
    this.#options = options;
    const { clock, log, files, prover, refuse, onRelease } = options;
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
    return this.#confirmed;
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
    const { kept } = this.#confirmed;
    return kept?.bootId === this.#options.bootId ? kept : undefined;
  }

  /** Whether this value of a section was proven before; putting it in force cannot cut the node off any more than it is. */
  isProven(section: string, raw: unknown): boolean {
    const { kept, window } = this;
    const trial = window?.state === "awaiting-keep" ? window.guards : {};
    return [this.#confirmed.sections, kept?.sections ?? {}, trial].some(
      (known) => Object.hasOwn(known, section) && isSameValue(known[section], raw),
    );
  }

  /**
   * What to do about a section: apply the desired value, or while that is kept back what was confirmed before. Where nothing ever was, the
   * section rests: what it has is what the restore left.
   */
  effective(section: string, raw: unknown): { readonly value: unknown } | "rest" {
    if (this.whyNot(section, raw) === undefined) return { value: raw };
    const { kept } = this;
    const own = kept !== undefined && Object.hasOwn(kept.sections, section) ? kept.sections : this.#confirmed.sections;
    return Object.hasOwn(own, section) ? { value: own[section] ?? undefined } : "rest";
  }

  /** Why a desired value is not applied; undefined when it is. */
  whyNot(section: string, raw: unknown): string | undefined {
    const held = this.withholding.reasonFor(section, raw);
    if (held !== undefined) {
      const next =
        held.is === "refused" ? "not tried again until it changes" : "tried again when the control plane is reached";
      return `taken back (${held.last.code}: ${held.last.evidence}); ${next}`;
    }
    const isUntold = this.#isDistrustful && Object.hasOwn(this.#confirmed.sections, section);
    if (!isUntold || this.isProven(section, raw)) return undefined;
    return "the record of a change that was cut short was damaged; what was confirmed before is in force until there is a session";
  }

  /** Notes what the machine has without a change: it was there already. */
  async adopt(section: string, raw: unknown): Promise<void> {
    if (this.window !== undefined || this.isProven(section, raw)) return;
    const { sections, ...rest } = this.#confirmed;
    await this.#saveConfirmed({ ...rest, sections: { ...sections, [section]: raw ?? null } });
  }

  /**
   * Opens the window of a pass: the undo of every step is on disk and somebody watches before the first is taken.
   * @throws {HostError} `busy` while a trial lasts; when the disk refuses, or nobody can watch. Then nothing may be applied.
   */
  async open(entries: readonly Entry[], guards: Guards, versions: Versions, signal: AbortSignal): Promise<void> {
    const { checkpoint, clock, request, prover, bootId, owner } = this.#options;
    if (this.window !== undefined)
      throw new HostError("busy", "another change is being tried; this one waits for its end");
    const { mode, seconds, isLocal } = request();
    const { bootId: boot, sinceBoot } = this.#now();
    const [openedAt, waitMs] = [clock.now(), seconds * 1000];
    const window: Window = {
      mode,
      state: "applying",
      bootId: boot,
      openedAt,
      deadlineAt: openedAt + waitMs,
      deadline: sinceBoot + waitMs,
      seconds,
      owner: { pid: owner.pid, startTicks: owner.startTicks },
      before: prover.before(),
      versions,
      guards,
      isLocal,
    };
    await checkpoint.open(entries, openedAt, window);
    this.#asked = undefined;
    this.#unreached = [];
    try {
      this.#watcher = await this.#options.watch(checkpoint.pending?.id ?? bootId, waitMs, signal);
    } catch (error) {
      await checkpoint.abandon();
      throw error;
    }
    this.#options.onStanding();
  }

  /** Decides after the last step; until then the pass waits. Rejects when aborted: the window then stays for the next start. */
  async settle(isSuperseded: () => boolean, signal: AbortSignal): Promise<Settled> {
    this.#hasSession = false;
    let end = await this.#after({ type: "applied" });
    while (end === undefined) {
      signal.throwIfAborted();
      end = (await this.#afterAsking(isSuperseded)) ?? (await this.#afterTrying(signal));
      if (this.window?.state === "awaiting-keep") return { is: "trial" };
      end ??= await this.#afterAsking(isSuperseded);
      if (end === undefined) await this.#pause(signal);
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

  /** Keeps the change that is being tried or proven. @throws {InputError} `not-found` when there is none. */
  keep(): void {
    this.#ask("keep");
  }

  /** Takes the change back at once. @throws {InputError} `not-found` when there is none. */
  revert(): void {
    this.#ask("revert");
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
  async noteEnd(reason: RestoreReason, failure?: { readonly step: Step; readonly error: Error }): Promise<void> {
    const { window } = this;
    const id = this.#options.checkpoint.pending?.id;
    if (window === undefined || reason === "superseded" || id === this.#notedId) return;
    this.#notedId = id;
    const evidence = failure?.error.message ?? endText(reason, window, this.#unreached);
    const { mode, isLocal, versions, guards } = window;
    const { kind, subject } = failure?.step ?? { kind: "", subject: "" };
    await this.#note(guards, {
      at: this.#options.clock.now(),
      by: "agent",
      code: reason,
      evidence: evidence.slice(0, MAX_EVIDENCE),
      ...(failure === undefined ? {} : { step: { kind: kind.slice(0, 64), subject: subject.slice(0, 512) } }),
      mode,
      isLocal,
      versions,
      failed: [],
    });
  }

  /** Takes back what is pending. */
  async restore(restorables: readonly Restorable[], signal: AbortSignal): Promise<Restored> {
    const restored = await this.#options.checkpoint.restore(restorables, signal);
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
    const { pending, isDamaged } = await this.#options.checkpoint.find();
    this.#isDistrustful = isDamaged;
    if (isDamaged) return "damaged";
    if (pending?.window === undefined) return pending === undefined ? "nothing" : "to-restore";
    const end = afterEvent(pending.window, { type: "found" }, this.#now());
    if (end.do === "restore") {
      await this.noteEnd(end.reason);
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
    this.#confirmed = valueOf(await this.#options.files.confirmed.load()) ?? this.#confirmed;
    await this.withholding.load();
    this.#lastTakenBack = this.withholding.held?.last;
  }

  #ask(what: "keep" | "revert"): void {
    const { window } = this;
    if (window === undefined) throw new InputError("not-found", "no change waits for being kept or taken back");
    if (what === "keep" && window.state === "applying")
      throw new InputError("busy", "the change is still being applied");
    this.#asked = what;
    this.#ring();
    this.#options.onStanding();
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

  /** Tries once to reach whom it must; where nobody was reached before, a session proves more than any try. */
  async #afterTrying(signal: AbortSignal): Promise<Settled | undefined> {
    const { prover, clock } = this.#options;
    const { window } = this;
    if (window === undefined) return undefined;
    if (!window.before.session) {
      this.#unreached = [{ target: "control plane", message: "there was no session before the change, and none came" }];
      return this.#hasSession ? this.#after({ type: "proved" }) : undefined;
    }
    const trying = new AbortController();
    const cut = (): void => trying.abort();
    const takeBack = clock.after(Math.min(ATTEMPT_MS, this.leftMs ?? 0), cut);
    signal.addEventListener("abort", cut, { once: true });
    this.#ring = cut;
    try {
      this.#unreached = await prover.attempt(window.before, trying.signal);
    } catch (error) {
      if (!trying.signal.aborted) throw error;
      return undefined;
    } finally {
      takeBack();
      signal.removeEventListener("abort", cut);
      this.#ring = () => undefined;
    }
    return this.#unreached.length === 0 ? this.#after({ type: "proved" }) : undefined;
  }

  async #pause(signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    await new Promise<void>((resolve) => {
      const done = (): void => {
        takeBack();
        signal.removeEventListener("abort", done);
        this.#ring = () => undefined;
        resolve();
      };
      const takeBack = clock.after(EVERY_MS, done);
      signal.addEventListener("abort", done, { once: true });
      this.#ring = done;
    });
  }

  async #after(event: WindowEvent): Promise<Settled | undefined> {
    const { window } = this;
    if (window === undefined) throw new HostError("checkpoint-taken", "the change was taken back by the guard");
    const end: WindowEnd = afterEvent(window, event, this.#now());
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

  async #confirm({ guards, versions, isLocal }: Window): Promise<void> {
    const { checkpoint, bootId, clock, original, log } = this.#options;
    await checkpoint.confirm();
    await this.#unwatch();
    await this.withholding.forget(guards);
    const { sections, kept: before, ...rest } = this.#confirmed;
    if (isLocal) {
      const over = Object.fromEntries(Object.keys(guards).map((name) => [name, original(name) ?? null]));
      await this.#saveConfirmed({ sections, ...rest, kept: { bootId, at: clock.now(), sections: guards, over } });
    } else {
      const own = Object.keys(guards).some((name) => before !== undefined && Object.hasOwn(before.sections, name));
      const kept = before === undefined || own ? {} : { kept: before };
      await this.#saveConfirmed({ sections: { ...sections, ...guards }, versions, ...kept });
    }
    log.info({ versions, isLocal }, "change confirmed");
    this.#options.onStanding();
  }

  async #unwatch(): Promise<void> {
    const watcher = this.#watcher;
    this.#watcher = undefined;
    this.#unreached = [];
    await watcher?.end();
  }

  async #saveConfirmed(confirmed: Confirmed): Promise<void> {
    this.#confirmed = confirmed;
    const { files, log } = this.#options;
    // Not on disk, it is only proven once more after the next start.
    await files.confirmed.save(confirmed).catch((error: unknown) => log.warn({ err: toError(error) }, "not saved"));
  }

  #now(): Moment {
    return { bootId: this.#options.bootId, sinceBoot: this.#options.clock.sinceBoot() };
  }
}
