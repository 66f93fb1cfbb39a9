import { join } from "node:path";
import type { Clock } from "../../../host/clock.ts";
import type { Directories } from "../../../host/files/directories.ts";
import type { Files } from "../../../host/files/files.ts";
import { parseQuarantined, QUARANTINE, quarantineEntry, type Quarantined, type VolumeShape } from "./volume-paths.ts";

/** Times before this mean that the clock is not set. */
const FIRST_BELIEVABLE_MS = Date.UTC(2025, 0, 1);
const MAX_ENTRIES_PER_CALL = 20_000;

/** Quarantine of removed volumes. Their names hold all state, so nothing is lost between two steps. */
export class VolumeQuarantine {
  readonly #dataStore: string;
  readonly #clock: Clock;
  readonly #files: Files;
  readonly #directories: Directories;
  #endsAt: readonly number[] = [];

  constructor(parts: {
    readonly dataStore: string;
    readonly clock: Clock;
    readonly files: Files;
    readonly directories: Directories;
  }) {
    this.#dataStore = parts.dataStore;
    this.#clock = parts.clock;
    this.#files = parts.files;
    this.#directories = parts.directories;
  }

  /** Expiry of the next entry in Unix milliseconds; undefined without one. */
  get nextEnd(): number | undefined {
    return this.#endsAt.length === 0 ? undefined : Math.min(...this.#endsAt);
  }

  /** Moves a volume to quarantine; succeeds if nothing is left of it. */
  async put(name: string, shape: VolumeShape, keepMs: number): Promise<void> {
    await this.#directories.makeWithin(this.#dataStore, QUARANTINE, 0o700);
    const now = this.#clock.now();
    await this.#directories.move(
      join(this.#dataStore, ...shape.parts),
      this.#at(quarantineEntry(name, now, now + keepMs)),
    );
    await this.list();
  }

  /** Restores the latest volume of that name and kind; false if there is none or the place is in use. */
  async restore(name: string, shape: VolumeShape): Promise<boolean> {
    if ((await this.#directories.kind(join(this.#dataStore, ...shape.parts))) !== undefined) return false;
    const kind = shape.encrypted ? "file" : "directory";
    for (const { entry } of (await this.list()).filter((one) => one.name === name).toReversed()) {
      if ((await this.#directories.kind(this.#at(entry))) !== kind) continue;
      await this.#directories.makeWithin(this.#dataStore, shape.parts.slice(0, -1), 0o755);
      return this.#directories.move(this.#at(entry), join(this.#dataStore, ...shape.parts));
    }
    return false;
  }

  /** Lists entries, oldest first. */
  async list(): Promise<readonly Quarantined[]> {
    const names = await this.#files.list(join(this.#dataStore, ...QUARANTINE));
    const entries = names.flatMap((name) => parseQuarantined(name) ?? []).toSorted((a, b) => a.beganAt - b.beganAt);
    this.#endsAt = entries.map(({ endsAt }) => endsAt);
    return entries;
  }

  /** Removes expired entries, a bounded part per call; returns the errors of those that cannot be removed. */
  async sweep(signal: AbortSignal): Promise<readonly Error[]> {
    const errors: Error[] = [];
    const now = this.#clock.now();
    if (now < FIRST_BELIEVABLE_MS) return errors;
    for (const one of await this.list()) {
      if (one.beganAt < FIRST_BELIEVABLE_MS) {
        // Quarantined before the clock was set: its time starts now.
        const entry = quarantineEntry(one.name, now, now + Math.max(one.endsAt - one.beganAt, 0));
        await this.#directories.move(this.#at(one.entry), this.#at(entry));
      } else if (one.endsAt <= now) {
        try {
          if (!(await this.#directories.removeTree(this.#at(one.entry), MAX_ENTRIES_PER_CALL, signal))) break;
        } catch (error) {
          signal.throwIfAborted();
          if (!(error instanceof Error)) throw error;
          errors.push(error);
        }
      }
    }
    await this.list();
    return errors;
  }

  #at(entry: string): string {
    return join(this.#dataStore, ...QUARANTINE, entry);
  }
}
