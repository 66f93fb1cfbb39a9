import { z } from "zod";
import { HostError, toError } from "../errors.ts";
import type { Files } from "../host/files/files.ts";
import { stateFile, valueOf, type StateFile } from "../host/files/state-file.ts";
import { Text64 } from "../protocol/values/values.ts";
import { Window } from "./window.ts";

/** Undo of one step of a pass, in the order of the steps; null if the step cannot be undone. */
export const Entry = z.object({ section: Text64, undo: z.unknown() });
export type Entry = z.infer<typeof Entry>;

/** A pending change; without a window it ends with the process that made it. */
const Pending = z.object({ id: z.uuid(), startedAt: z.number(), entries: z.array(Entry), window: Window.optional() });
export type Pending = z.infer<typeof Pending>;
/** Marker that another process is rolling back the pending change `id`; its owner must stop. */
const TakenOver = z.object({ id: z.uuid(), at: z.number() });
type TakenOver = z.infer<typeof TakenOver>;
/** Number of steps of the pass `id` that may have changed the machine. */
const Progress = z.object({ id: z.uuid(), reached: z.int().min(0) });
type Progress = z.infer<typeof Progress>;

/** A section that can undo its own stored steps. */
export interface Restorable {
  readonly name: string;
  applyStored(step: unknown, signal: AbortSignal): Promise<void>;
}

/** Result of a restore. The checkpoint remains until every undo succeeded. */
export interface Restored {
  readonly undone: number;
  readonly failed: readonly { readonly section: string; readonly error: Error }[];
  /** The stored change was unreadable: it was set aside, and nothing was undone. */
  readonly isDamaged: boolean;
}

/**
 * The pending change of one pass on disk. `checkpoint.json` holds the undo of every step and the window, `checkpoint-progress.json` the
 * progress. Removing the former confirms or ends the change atomically. `checkpoint-taken.json` takes the change from its owner.
 */
export class Checkpoint {
  readonly #pending: StateFile<Pending>;
  readonly #progress: StateFile<Progress>;
  readonly #taken: StateFile<TakenOver>;
  #open: Pending | undefined;
  /** Progress of this process, independent of the files. */
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

  /** The pending change that this process opened or found, if any. */
  get pending(): Pending | undefined {
    return this.#open;
  }

  /**
   * Stores the undo of every step before the first is applied.
   * @throws {HostError} if the disk refuses; no step may be applied then.
   */
  async open(entries: readonly Entry[], now: number, window?: Window): Promise<void> {
    const pending = { id: crypto.randomUUID(), startedAt: now, entries: [...entries] };
    await this.#store(window === undefined ? pending : { ...pending, window });
  }

  /**
   * Reads the pending change from disk and adopts it; a damaged one is set aside. A change that this process has open but the disk lacks
   * was taken by another process. It stays open, since a step may have run after the other's rollback.
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
   * Stores the state of the window.
   * @throws {HostError} `checkpoint-taken` if another process is rolling the change back; errors of the disk.
   */
  async setWindow(window: Window): Promise<void> {
    await this.#refuseTaken();
    await this.#refuseGone();
    await this.#store({ ...this.#opened(), window });
  }

  /** Takes the pending change from its owner; returns whether it is still pending. */
  async takeOver(id: string, now: number): Promise<boolean> {
    // A full or read-only disk must not prevent a rollback; the confirming process also checks that the change still exists.
    await this.#taken.save({ id, at: now }).catch(() => undefined);
    // The confirming process checks for the marker after removing the change, so one of the two sees the other.
    if ((await this.find()).pending?.id === id) return true;
    await this.forgetTaken();
    return false;
  }

  /** Replaces the undo of the steps from `first` on, none of which has started. */
  async amend(first: number, entries: readonly Entry[]): Promise<void> {
    const open = this.#opened();
    await this.#store({ ...open, entries: [...open.entries.slice(0, first), ...entries] });
  }

  /**
   * Records that step `index` is about to change the machine.
   * @throws {HostError} `checkpoint-taken` if another process is rolling the change back; errors of the disk.
   */
  async mark(index: number): Promise<void> {
    await this.#refuseTaken();
    const progress = { id: this.#opened().id, reached: index + 1 };
    await this.#progress.save(progress);
    this.#begun = progress;
  }

  /**
   * Confirms the change.
   * @throws {HostError} `checkpoint-taken` if another process is rolling it back; errors of the disk.
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
    // The remaining files belong to no pass.
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

  /** Removes the marker of a takeover, once the owner has seen it. */
  async forgetTaken(): Promise<void> {
    await this.#taken.remove().catch(() => undefined);
  }

  /** Ends the change although some undo failed; within this process even if the disk refuses. */
  async abandon(): Promise<void> {
    this.#open = undefined;
    await this.#pending.remove();
    await this.#forget();
  }

  /** Reports whether a change is pending on disk; a damaged one is set aside and cannot be restored. */
  async isPending(): Promise<boolean> {
    return valueOf(await this.#pending.load()) !== undefined;
  }

  /**
   * Undoes every step that the pending pass may have applied, last step first, and removes the change. Continues after a failed undo, and
   * can be repeated after a crash at any point. A change that another process took while it was open here is undone once more.
   */
  async restore(sections: readonly Restorable[], signal: AbortSignal): Promise<Restored> {
    const loaded = await this.#pending.load();
    const pending = valueOf(loaded) ?? this.#open;
    // A newer pass exists: its owner has ended this one.
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
      // After a failure every undo remains due. A failed write is no reason to stop: an undo can be repeated.
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

  /** Returns the stored progress. If it is damaged, every step counts as started; progress of an earlier pass counts as none. */
  async #reached({ id, entries }: Pending): Promise<number> {
    const loaded = await this.#progress.load();
    if (loaded.is === "lost") return entries.length;
    const known = [valueOf(loaded), this.#begun].flatMap((one) => (one?.id === id ? one.reached : []));
    return Math.min(Math.max(0, ...known), entries.length);
  }
}

function taken(): HostError {
  return new HostError("checkpoint-taken", "the guard is rolling the change back: its deadline has passed");
}
