import { NEWER_SUFFIX, type Loaded, type StateFile } from "./state-file.ts";

/** A file of the state directory that was found damaged and set aside. */
export interface Damage {
  /** Relative to the state directory. */
  readonly file: string;
  /** Whether the other copy of it is in force. */
  readonly isRecovered: boolean;
  /** Nothing is wrong with it, but a newer version wrote it in a form that this one does not know. */
  readonly isNewer?: boolean;
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
export function describeDamage({ file, isRecovered, isNewer }: Damage): string {
  const anew = "it was set aside and begun anew";
  if (isNewer !== true) return `${file} was damaged; ${isRecovered ? "its other copy is in force" : anew}`;
  const left = "it was set aside, and what this version understands is in force";
  return `${file} was written by a newer version; ${isRecovered ? left : anew}`;
}

/** What reading a file says of damage to it or to its previous copy. */
export function damageOf(file: string, loaded: Loaded<unknown>): Damage | undefined {
  if (loaded.is === "absent" || loaded.damagedCopy === undefined) return undefined;
  const isNewer = loaded.damagedCopy.endsWith(NEWER_SUFFIX) ? { isNewer: true } : {};
  switch (loaded.is) {
    case "good":
      return { file: `${file}.previous`, isRecovered: true, ...isNewer };
    case "recovered":
      return { file, isRecovered: true, ...isNewer };
    case "lost":
      return { file, isRecovered: false, ...isNewer };
  }
}
