import { wallTimes, type Clock, type WallTimes } from "../../host/clock.ts";
import { describeDamage, type Damage, type OnDamage } from "../../host/files/damage.ts";
import type { Files } from "../../host/files/files.ts";

/** A fault, which stays until it is repaired. Times in Unix milliseconds. */
export interface Fault {
  readonly code: string;
  readonly message: string;
  readonly since: number;
  /** When it was repaired; it is reported until the agent stops, to explain the copy that was set aside. */
  readonly mendedAt?: number;
}

const MAX_FAULTS = 100;
const MAX_WRITTEN = 256;

/** The faults since the start. A damaged file is repaired once it is written again. */
export class FaultList {
  readonly #clock: Clock;
  readonly #wall: WallTimes;
  readonly #onFault: (code: string, message: string) => void;
  /** Times are monotonic milliseconds. */
  readonly #faults: { fault: Fault; readonly path: string | undefined }[] = [];
  /** Files written before their damage is reported, during a start. */
  readonly #written = new Set<string>();
  /** Paths whose damage was reported before they were read. */
  readonly #foreseen = new Set<string>();

  constructor(clock: Clock, onFault: (code: string, message: string) => void) {
    this.#clock = clock;
    this.#wall = wallTimes(clock);
    this.#onFault = onFault;
  }

  get all(): readonly Fault[] {
    return this.#faults.map(({ fault: { code, message, since, mendedAt } }) => ({
      code,
      message,
      since: this.#wall.of(since),
      ...(mendedAt === undefined ? {} : { mendedAt: this.#wall.of(mendedAt) }),
    }));
  }

  add(code: string, message: string, path?: string): void {
    this.#onFault(code, message);
    if (this.#faults.length >= MAX_FAULTS) return;
    const since = this.#clock.elapsed();
    const isMended = path !== undefined && this.#written.has(path);
    this.#faults.push({ fault: { code, message, since, ...(isMended ? { mendedAt: since } : {}) }, path });
  }

  /** Adds the damaged files of a state directory. */
  addDamage(stateDir: string, damage: readonly Damage[]): void {
    for (const found of damage) {
      const code = found.isNewer === true ? "newer-file" : "damaged-file";
      this.add(code, describeDamage(found), `${stateDir}/${found.file}`);
    }
  }

  /** Adds damage that the reader of a file is going to report once more. */
  foresee(stateDir: string, damage: readonly Damage[]): void {
    this.addDamage(stateDir, damage);
    for (const { file } of damage) this.#foreseen.add(`${stateDir}/${file}`);
  }

  /** Returns a function that adds damage in a state directory when it is found. */
  damageBelow(stateDir: string): OnDamage {
    return (found) => {
      if (!this.#foreseen.delete(`${stateDir}/${found.file}`)) this.addDamage(stateDir, [found]);
    };
  }

  /** Notes that a file was written again. */
  mended(path: string): void {
    if (this.#written.size < MAX_WRITTEN) this.#written.add(path);
    this.settled(path);
  }

  /** Marks the faults of a file as repaired; it may fail again. */
  settled(path: string): void {
    for (const known of this.#faults) {
      if (known.path !== path || known.fault.mendedAt !== undefined) continue;
      known.fault = { ...known.fault, mendedAt: this.#clock.elapsed() };
    }
  }

  /** Returns the same files, with each written one noted. */
  watched(files: Files): Files {
    return {
      ...files,
      writeAtomic: async (path, text, mode) => {
        await files.writeAtomic(path, text, mode);
        this.mended(path);
      },
    };
  }
}
