import { toError } from "../../errors.ts";
import { wallTimes, type Clock, type WallTimes } from "../../host/clock.ts";
import type { Files } from "../../host/files/files.ts";

export interface StorageWatchOptions {
  readonly clock: Clock;
  /** Reports the first write that the disk refuses. */
  readonly onRefused: (error: Error) => void;
  /** Reports that the disk accepts writes again. */
  readonly onAccepted: () => void;
}

const PROBE_MS = 10_000;

/** Tracks whether the disk accepts writes. After a refused write it probes every 10 s until one succeeds. */
export class StorageWatch {
  readonly #options: StorageWatchOptions;
  readonly #wall: WallTimes;
  /** `since` is in monotonic milliseconds. */
  #refusal: { readonly message: string; readonly since: number } | undefined;
  #probe: (() => Promise<void>) | undefined;
  #cancelProbe = (): void => undefined;
  #isClosed = false;

  constructor(options: StorageWatchOptions) {
    this.#options = options;
    this.#wall = wallTimes(options.clock);
  }

  /** The first refused write, and its time in Unix milliseconds; undefined while writes succeed. */
  get refusal(): { readonly message: string; readonly since: number } | undefined {
    const refusal = this.#refusal;
    return refusal === undefined ? undefined : { message: refusal.message, since: this.#wall.of(refusal.since) };
  }

  /** Sets the write that probes the disk, which rejects while the disk refuses. Nothing is probed before. */
  begin(probe: () => Promise<void>): void {
    this.#probe = probe;
    if (this.#refusal !== undefined) this.#schedule();
  }

  /** Notes a refused write. */
  refused(thrown: unknown): void {
    if (this.#isClosed || this.#refusal !== undefined) return;
    const error = toError(thrown);
    this.#refusal = { message: error.message, since: this.#options.clock.elapsed() };
    this.#options.onRefused(error);
    this.#schedule();
  }

  /** Returns the same files, with each refused write noted. */
  watched(files: Files): Files {
    const noting = async (work: Promise<void>): Promise<void> => {
      try {
        await work;
      } catch (error) {
        this.refused(error);
        throw error;
      }
    };
    return {
      ...files,
      writeAtomic: (path, text, mode) => noting(files.writeAtomic(path, text, mode)),
      move: (from, to) => noting(files.move(from, to)),
      remove: (path) => noting(files.remove(path)),
    };
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelProbe();
  }

  #schedule(): void {
    const probe = this.#probe;
    if (probe !== undefined) this.#cancelProbe = this.#options.clock.after(PROBE_MS, () => void this.#try(probe));
  }

  async #try(probe: () => Promise<void>): Promise<void> {
    try {
      await probe();
    } catch {
      if (!this.#isClosed) this.#schedule();
      return;
    }
    this.#refusal = undefined;
    if (!this.#isClosed) this.#options.onAccepted();
  }
}
