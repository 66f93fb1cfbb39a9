import { wallTimes, type Clock, type WallTimes } from "../../host/clock.ts";
import { describeDamage, type Damage, type OnDamage } from "../../host/files/damage.ts";
import type { Files } from "../../host/files/files.ts";

/** Something that went wrong; it stays so until somebody or something mends it. Times in Unix milliseconds. */
export interface Fault {
  readonly code: string;
  readonly message: string;
  readonly since: number;
  /** When it was mended; it is told until the agent ends, so that nobody wonders about the copy that was set aside. */
  readonly mendedAt?: number;
}

const MAX_FAULTS = 100;
const MAX_WRITTEN = 256;

/** What went wrong since the start, and what of it was mended since. A damaged file is mended once it is written anew. */
export class FaultList {
  readonly #clock: Clock;
  readonly #wall: WallTimes;
  readonly #onFault: (code: string, message: string) => void;
  /** Their times are of the monotonic clock. */
  readonly #faults: { fault: Fault; readonly path: string | undefined }[] = [];
  /** What was written already when its damage is told, as far back as a start goes. */
  readonly #written = new Set<string>();
  /** Paths of which damage was told before anybody read them. */
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

  /** Adds what was found damaged below a state directory. */
  addDamage(stateDir: string, damage: readonly Damage[]): void {
    for (const found of damage) {
      const code = found.isNewer === true ? "newer-file" : "damaged-file";
      this.add(code, describeDamage(found), `${stateDir}/${found.file}`);
    }
  }

  /** Adds damage that whoever reads the file will tell again, once. */
  foresee(stateDir: string, damage: readonly Damage[]): void {
    this.addDamage(stateDir, damage);
    for (const { file } of damage) this.#foreseen.add(`${stateDir}/${file}`);
  }

  /** Adds damage below a state directory one by one, as it is found. */
  damageBelow(stateDir: string): OnDamage {
    return (found) => {
      if (!this.#foreseen.delete(`${stateDir}/${found.file}`)) this.addDamage(stateDir, [found]);
    };
  }

  /** A file is whole: it was written anew. */
  mended(path: string): void {
    if (this.#written.size < MAX_WRITTEN) this.#written.add(path);
    this.settled(path);
  }

  /** What went wrong with a file so far is over; it may go wrong again. */
  settled(path: string): void {
    for (const known of this.#faults) {
      if (known.path !== path || known.fault.mendedAt !== undefined) continue;
      known.fault = { ...known.fault, mendedAt: this.#clock.elapsed() };
    }
  }

  /** The same files, with every written one known. */
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
