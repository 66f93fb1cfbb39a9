import type { Loaded, StateFile } from "./state-file.ts";

/** A file of the state directory that was found damaged and set aside. */
export interface Damage {
  /** Relative to the state directory. */
  readonly file: string;
  /** Whether the other copy of it is in force. */
  readonly isRecovered: boolean;
}

/** Told of each damaged file that is found. */
export type OnDamage = (found: Damage) => void;

/** The same file, whose damage is told when it is read; `name` is relative to the state directory. */
export function tellingDamage<T>(file: StateFile<T>, name: string, onDamage: OnDamage | undefined): StateFile<T> {
  return {
    ...file,
    async load() {
      const loaded = await file.load();
      const found = damageOf(name, loaded);
      if (found !== undefined) onDamage?.(found);
      return loaded;
    },
  };
}

/** Damage in words. */
export function describeDamage({ file, isRecovered }: Damage): string {
  return `${file} was damaged; ${isRecovered ? "its other copy is in force" : "it was set aside and begun anew"}`;
}

/** What reading a file says of damage to it or to its previous copy. */
export function damageOf(file: string, loaded: Loaded<unknown>): Damage | undefined {
  switch (loaded.is) {
    case "absent":
      return undefined;
    case "good":
      return loaded.damagedCopy === undefined ? undefined : { file: `${file}.previous`, isRecovered: true };
    case "recovered":
      return { file, isRecovered: true };
    case "lost":
      return { file, isRecovered: false };
  }
}
