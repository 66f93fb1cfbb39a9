import type { Logger } from "pino";
import { toError } from "../../errors.ts";
import type { Confirmed } from "../../checkpoint/commit-files.ts";
import type { Window } from "../../checkpoint/window.ts";
import type { Clock } from "../../host/clock.ts";
import { valueOf, type StateFile } from "../../host/files/state-file.ts";
import { isSameValue } from "./withholding.ts";

export interface ProvenRecordOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly bootId: string;
  readonly file: StateFile<Confirmed>;
  /** What the documents themselves say of a section that is tried on this machine. */
  readonly original: (section: string) => unknown;
}

/** What was last proven of the sections that could cut the node off, in memory and on disk. */
export class ProvenRecord {
  readonly #options: ProvenRecordOptions;
  #confirmed: Confirmed = { sections: {}, versions: {} };

  constructor(options: ProvenRecordOptions) {
    this.#options = options;
  }

  get confirmed(): Confirmed {
    return this.#confirmed;
  }

  /** The sections that were kept on this machine in the place of the documents' own, in this boot. */
  get kept(): Confirmed["kept"] {
    const { kept } = this.#confirmed;
    return kept?.bootId === this.#options.bootId ? kept : undefined;
  }

  async load(): Promise<void> {
    this.#confirmed = valueOf(await this.#options.file.load()) ?? this.#confirmed;
  }

  /** Whether this value of a section was proven. */
  has(section: string, raw: unknown): boolean {
    return [this.#confirmed.sections, this.kept?.sections ?? {}].some(
      (known) => Object.hasOwn(known, section) && isSameValue(known[section], raw),
    );
  }

  /** The value of a section to be in force while no other may be; undefined where none was ever proven. */
  valueOf(section: string): { readonly value: unknown } | undefined {
    const { kept } = this;
    const own = kept !== undefined && Object.hasOwn(kept.sections, section) ? kept.sections : this.#confirmed.sections;
    return Object.hasOwn(own, section) ? { value: own[section] ?? undefined } : undefined;
  }

  /** Notes what the machine has without a change, unless that is known. What was kept is over where the documents say otherwise. */
  async adopt(section: string, raw: unknown): Promise<void> {
    const isReplaced = this.#isReplaced(section, raw);
    if (this.has(section, raw) && !isReplaced) return;
    const { sections, kept, ...rest } = this.#confirmed;
    const still = kept === undefined || isReplaced ? {} : { kept };
    await this.#save({ ...rest, ...still, sections: { ...sections, [section]: raw ?? null } });
  }

  /** Notes what was proven, or kept. */
  async confirm({ guards, versions, isLocal }: Pick<Window, "guards" | "versions" | "isLocal">): Promise<void> {
    const { bootId, clock, original } = this.#options;
    const { sections, kept: before, ...rest } = this.#confirmed;
    if (isLocal) {
      const over = Object.fromEntries(Object.keys(guards).map((name) => [name, original(name) ?? null]));
      await this.#save({ sections, ...rest, kept: { bootId, at: clock.now(), sections: guards, over } });
      return;
    }
    const own = Object.keys(guards).some((name) => before !== undefined && Object.hasOwn(before.sections, name));
    const kept = before === undefined || own ? {} : { kept: before };
    await this.#save({ sections: { ...sections, ...guards }, versions, ...kept });
  }

  /** Whether this is what the documents say of a section that was kept, and no longer what they said then. */
  #isReplaced(section: string, raw: unknown): boolean {
    const { kept } = this;
    if (kept === undefined || !Object.hasOwn(kept.sections, section)) return false;
    const said = this.#options.original(section);
    return isSameValue(said, raw) && !isSameValue(said, kept.over[section]);
  }

  async #save(confirmed: Confirmed): Promise<void> {
    this.#confirmed = confirmed;
    const { file, log } = this.#options;
    // Not on disk, it is only proven once more after the next start.
    await file.save(confirmed).catch((error: unknown) => log.warn({ err: toError(error) }, "not saved"));
  }
}
