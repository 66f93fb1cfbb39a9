import { z } from "zod";
import { HostError, toError } from "../errors.ts";
import type { Files } from "../host/files/files.ts";
import { stateFile, valueOf, type StateFile } from "../host/files/state-file.ts";
import { Text64 } from "../protocol/values/values.ts";
import { Window } from "./window.ts";

/** The undo of one step of a pass, in the order in which the steps are applied; null where there is no way back. */
export const Entry = z.object({ section: Text64, undo: z.unknown() });
export type Entry = z.infer<typeof Entry>;

/** A pending change; without a window it only lasts until whoever made it ends. */
const Pending = z.object({ id: z.uuid(), startedAt: z.number(), entries: z.array(Entry), window: Window.optional() });
export type Pending = z.infer<typeof Pending>;
/** Says that somebody else takes the pending change `id` back; whoever made it may not go on with it. */
const TakenOver = z.object({ id: z.uuid(), at: z.number() });
type TakenOver = z.infer<typeof TakenOver>;
/** How many steps of the pass `id` may have changed the machine. */
const Progress = z.object({ id: z.uuid(), reached: z.int().min(0) });
type Progress = z.infer<typeof Progress>;

/** What can take back a step of its own that was stored. */
export interface Restorable {
  readonly name: string;
  applyStored(step: unknown, signal: AbortSignal): Promise<void>;
}

/** What a restore came to. The checkpoint stays until nothing failed. */
export interface Restored {
  readonly undone: number;
  readonly failed: readonly { readonly section: string; readonly error: Error }[];
  /** What was stored could not be read: it was set aside, and nothing was taken back. */
  readonly isDamaged: boolean;
}

/**
 * The pending change of one pass on disk: `checkpoint.json` has the undo of every step and the window, `checkpoint-progress.json` how far
 * the pass got. Removing the former is what confirms or ends it, in one durable step. `checkpoint-taken.json` takes it from its maker.
 */
export class Checkpoint {
  readonly #pending: StateFile<Pending>;
  readonly #progress: StateFile<Progress>;
  readonly #taken: StateFile<TakenOver>;
  #open: Pending | undefined;
  /** How far this process got with it, whatever becomes of the files. */
  #begun: Progress | undefined;

  /** @param dir an existing directory that only root may write to. */
  constructor(files: Files, dir: string) {
    this.#pending = stateFile(files, { path: `${dir}/checkpoint.json`, schema: Pending, keepsPrevious: false });
    this.#progress = stateFile(files, {
      path: `${dir}/checkpoint-progress.json`,
      schema: Progress,
      keepsPrevious: false,
    });
    this.#taken = stateFile(files, { path: `${dir}/checkpoint-taken.json`, schema: TakenOver, keepsPrevious: false });
  }

  /** The pending change that this process has opened or found; undefined when there is none. */
  get pending(): Pending | undefined {
    return this.#open;
  }

  /**
   * Stores the undo of every step before the first is applied.
   * @throws {HostError} when the disk refuses; then nothing may be applied.
   */
  async open(entries: readonly Entry[], now: number, window?: Window): Promise<void> {
    const pending = { id: crypto.randomUUID(), startedAt: now, entries: [...entries] };
    await this.#store(window === undefined ? pending : { ...pending, window });
  }

  /**
   * Reads what is pending on disk and goes on with it; one that is damaged is set aside. What this process has open and the disk does not
   * was taken from it: it stays open, since a step may have come after whoever took it back.
   */
  async find(): Promise<{
    readonly pending: Pending | undefined;
    readonly isDamaged: boolean;
    readonly isTaken: boolean;
  }> {
    const loaded = await this.#pending.load();
    const found = valueOf(loaded);
    if (found === undefined && this.#open !== undefined)
      return { pending: this.#open, isDamaged: false, isTaken: true };
    this.#open = found;
    return { pending: found, isDamaged: loaded.is === "lost", isTaken: false };
  }

  /**
   * Stores how far the window is.
   * @throws {HostError} `checkpoint-taken` when somebody else takes the change back; the disk's own.
   */
  async setWindow(window: Window): Promise<void> {
    await this.#refuseTaken();
    await this.#refuseGone();
    await this.#store({ ...this.#opened(), window });
  }

  /** Takes the pending change from whoever made it; answers whether it is still the one that is pending. */
  async takeOver(id: string, now: number): Promise<boolean> {
    // A disk that takes no writes keeps nobody from going back; whoever confirms also looks whether the change is still there.
    await this.#taken.save({ id, at: now }).catch(() => undefined);
    // Whoever confirms looks for the note after it has removed the change, so that one of the two sees the other.
    if ((await this.find()).pending?.id === id) return true;
    await this.forgetTaken();
    return false;
  }

  /** Replaces the undo of the steps from `first` on, none of which was begun. */
  async amend(first: number, entries: readonly Entry[]): Promise<void> {
    const open = this.#opened();
    await this.#store({ ...open, entries: [...open.entries.slice(0, first), ...entries] });
  }

  /**
   * Says that step `index` is about to change the machine.
   * @throws {HostError} `checkpoint-taken` when somebody else takes the change back; the disk's own.
   */
  async mark(index: number): Promise<void> {
    await this.#refuseTaken();
    const progress = { id: this.#opened().id, reached: index + 1 };
    await this.#progress.save(progress);
    this.#begun = progress;
  }

  /**
   * Ends the pass: what it did stays.
   * @throws {HostError} `checkpoint-taken` when somebody else takes it back; the disk's own.
   */
  async confirm(): Promise<void> {
    await this.#refuseTaken();
    await this.#refuseGone();
    await this.#pending.remove();
    await this.#refuseTaken();
    await this.#forget();
  }

  async #forget(): Promise<void> {
    this.#open = undefined;
    this.#begun = undefined;
    // What is left belongs to no pass any more.
    await this.#progress.remove().catch(() => undefined);
  }

  async #refuseTaken(): Promise<void> {
    const note = valueOf(await this.#taken.load());
    if (note === undefined || note.id !== this.#open?.id) return;
    throw taken();
  }

  async #refuseGone(): Promise<void> {
    if (this.#open !== undefined && (await this.#pending.load()).is === "absent") throw taken();
  }

  /** Forgets that somebody took a change over, once whoever made it knows. */
  async forgetTaken(): Promise<void> {
    await this.#taken.remove().catch(() => undefined);
  }

  /** Ends it although not everything could be taken back; for this process even where the disk refuses to. */
  async abandon(): Promise<void> {
    this.#open = undefined;
    await this.#pending.remove();
    await this.#forget();
  }

  /** Whether a change is pending on disk; one that is damaged is set aside, and nothing can be restored from it. */
  async isPending(): Promise<boolean> {
    return valueOf(await this.#pending.load()) !== undefined;
  }

  /**
   * Takes back whatever the pending pass may have done, last step first, and removes it. Goes on past an undo that fails, and may be
   * repeated after a crash at any point. One that this process has open and somebody else has taken is taken back once more.
   */
  async restore(sections: readonly Restorable[], signal: AbortSignal): Promise<Restored> {
    const loaded = await this.#pending.load();
    const pending = valueOf(loaded) ?? this.#open;
    // Another pass was begun since: its maker has ended this one.
    if (this.#open !== undefined && pending?.id !== this.#open.id) return { undone: 0, failed: [], isDamaged: false };
    this.#open = pending;
    if (pending === undefined) return { undone: 0, failed: [], isDamaged: loaded.is === "lost" };
    const failed: { section: string; error: Error }[] = [];
    let undone = 0;
    for (let index = (await this.#reached(pending)) - 1; index >= 0; index -= 1) {
      signal.throwIfAborted();
      const entry = pending.entries[index];
      if (entry === undefined || entry.undo === null) continue;
      const section = sections.find(({ name }) => name === entry.section);
      try {
        if (section === undefined) throw new HostError("unknown-section", `${entry.section}: nobody can take it back`);
        await section.applyStored(entry.undo, signal);
        undone += 1;
      } catch (error) {
        signal.throwIfAborted();
        failed.push({ section: entry.section, error: toError(error) });
      }
      // Past a failure every undo stays due. A disk that takes no writes is no reason to stop: an undo may be repeated.
      if (failed.length > 0) continue;
      this.#begun = { id: pending.id, reached: index };
      await this.#progress.save(this.#begun).catch(() => undefined);
    }
    if (failed.length === 0) await this.abandon();
    return { undone, failed, isDamaged: false };
  }

  async #store(pending: Pending): Promise<void> {
    await this.#pending.save(pending);
    this.#open = pending;
  }

  #opened(): Pending {
    if (this.#open === undefined) throw new HostError("no-checkpoint", "no checkpoint is open");
    return this.#open;
  }

  /** Progress that is damaged may have been anything, so every step counts as begun; that of an earlier pass is none. */
  async #reached({ id, entries }: Pending): Promise<number> {
    const loaded = await this.#progress.load();
    if (loaded.is === "lost") return entries.length;
    const known = [valueOf(loaded), this.#begun].flatMap((one) => (one?.id === id ? one.reached : []));
    return Math.min(Math.max(0, ...known), entries.length);
  }
}

function taken(): HostError {
  return new HostError("checkpoint-taken", "the change is being taken back by the guard: its time was over");
}
