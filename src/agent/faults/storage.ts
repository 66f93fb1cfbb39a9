import { toError } from "../../errors.ts";
import { wallTimes, type Clock, type WallTimes } from "../../host/clock.ts";
import type { Files } from "../../host/files/files.ts";

export interface StorageWatchOptions {
  readonly clock: Clock;
  /** Writes to everything that is kept; rejects while the disk refuses. */
  readonly probe: () => Promise<void>;
  /** The disk began to refuse writes. */
  readonly onRefused: (error: Error) => void;
  /** It takes writes again: what waits in memory can be written. */
  readonly onTaken: () => void;
}

const PROBE_MS = 10_000;

/** Knows whether the disk takes writes: told of each refusal, and from then on trying by itself until it does. */
export class StorageWatch {
  readonly #options: StorageWatchOptions;
  readonly #wall: WallTimes;
  /** Its time is of the monotonic clock. */
  #refusal: { readonly message: string; readonly since: number } | undefined;
  #cancelProbe = (): void => undefined;
  #isClosed = false;

  constructor(options: StorageWatchOptions) {
    this.#options = options;
    this.#wall = wallTimes(options.clock);
  }

  /** Why and since when (Unix milliseconds) writes are refused; undefined while they are taken. */
  get refusal(): { readonly message: string; readonly since: number } | undefined {
    const refusal = this.#refusal;
    return refusal === undefined ? undefined : { message: refusal.message, since: this.#wall.of(refusal.since) };
  }

  /** A write was refused. */
  refused(thrown: unknown): void {
    if (this.#isClosed || this.#refusal !== undefined) return;
    const error = toError(thrown);
    this.#refusal = { message: error.message, since: this.#options.clock.elapsed() };
    this.#options.onRefused(error);
    this.#schedule();
  }

  /** The same files, with every refused write told. */
  watched(files: Files): Files {
    const telling = async (work: Promise<void>): Promise<void> => {
      try {
        await work;
      } catch (error) {
        this.refused(error);
        throw error;
      }
    };
    return {
      ...files,
      writeAtomic: (path, text, mode) => telling(files.writeAtomic(path, text, mode)),
      move: (from, to) => telling(files.move(from, to)),
      remove: (path) => telling(files.remove(path)),
    };
  }

  close(): void {
    this.#isClosed = true;
    this.#cancelProbe();
  }

  #schedule(): void {
    this.#cancelProbe = this.#options.clock.after(PROBE_MS, () => void this.#probe());
  }

  async #probe(): Promise<void> {
    try {
      await this.#options.probe();
    } catch {
      if (!this.#isClosed) this.#schedule();
      return;
    }
    this.#refusal = undefined;
    if (!this.#isClosed) this.#options.onTaken();
  }
}
