import type { Logger } from "pino";
import { toError } from "../../errors.ts";
import type { Confirmed } from "../../checkpoint/commit-files.ts";
import type { Window } from "../../checkpoint/window.ts";
import type { Clock } from "../../host/clock.ts";
import { valueOf, type StateFile } from "../../host/files/state-file.ts";
import { isSameValue } from "./work.ts";

export interface ProvenRecordOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly bootId: string;
  readonly file: StateFile<Confirmed>;
  /** Returns the documents' value of a section that is on trial on this machine. */
  readonly original: (section: string) => unknown;
}

/** Last proven values of the sections that could cut the node off, in memory and on disk. */
export class ProvenRecord {
  readonly #options: ProvenRecordOptions;
  #confirmed: Confirmed = { sections: {}, versions: {} };

  constructor(options: ProvenRecordOptions) {
    this.#options = options;
  }

  get confirmed(): Confirmed {
    return this.#confirmed;
  }

  /** Sections that an operator confirmed on this machine in this boot, instead of the documents' own. */
  get kept(): Confirmed["kept"] {
    const { kept } = this.#confirmed;
    return kept?.bootId === this.#options.bootId ? kept : undefined;
  }

  async load(): Promise<void> {
    this.#confirmed = valueOf(await this.#options.file.load()) ?? this.#confirmed;
  }

  /** Reports whether this value of a section is proven. */
  has(section: string, raw: unknown): boolean {
    return [this.#confirmed.sections, this.kept?.sections ?? {}].some(
      (known) => Object.hasOwn(known, section) && isSameValue(known[section], raw),
    );
  }

  /** Returns the proven value of a section; undefined if none was ever proven. */
  valueOf(section: string): { readonly value: unknown } | undefined {
    const { kept } = this;
    const own = kept !== undefined && Object.hasOwn(kept.sections, section) ? kept.sections : this.#confirmed.sections;
    return Object.hasOwn(own, section) ? { value: own[section] ?? undefined } : undefined;
  }

  /** Records a value that the machine already has. A locally confirmed value ends if the documents differ from it. */
  async adopt(section: string, raw: unknown): Promise<void> {
    const isReplaced = this.#isReplaced(section, raw);
    if (this.has(section, raw) && !isReplaced) return;
    const { sections, kept, ...rest } = this.#confirmed;
    const still = kept === undefined || isReplaced ? {} : { kept };
    await this.#save({ ...rest, ...still, sections: { ...sections, [section]: raw ?? null } });
  }

  /** Records proven or confirmed values. */
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

  /** Reports whether the documents' value of a locally confirmed section has changed since. */
  #isReplaced(section: string, raw: unknown): boolean {
    const { kept } = this;
    if (kept === undefined || !Object.hasOwn(kept.sections, section)) return false;
    const said = this.#options.original(section);
    return isSameValue(said, raw) && !isSameValue(said, kept.over[section]);
  }

  async #save(confirmed: Confirmed): Promise<void> {
    this.#confirmed = confirmed;
    const { file, log } = this.#options;
    // If the disk refuses, the value is proven again after the next start.
    await file.save(confirmed).catch((error: unknown) => log.warn({ err: toError(error) }, "not saved"));
  }
}
