import { NEWER_SUFFIX, type Loaded, type StateFile } from "./state-file.ts";

/** A damaged file of the state directory that was set aside. */
export interface Damage {
  /** Path relative to the state directory. */
  readonly file: string;
  /** Whether the previous copy is in use. */
  readonly isRecovered: boolean;
  /** Whether the file is intact but of an unknown form that a newer version wrote. */
  readonly isNewer?: boolean;
}

/** Receives each damaged file that is found. */
export type OnDamage = (found: Damage) => void;

/** Wraps a state file so that damage is reported when it is read. `name` is relative to the state directory. */
export function reportingDamage<T>(file: StateFile<T>, name: string, onDamage: OnDamage | undefined): StateFile<T> {
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

/** Describes damage for people. */
export function describeDamage({ file, isRecovered, isNewer }: Damage): string {
  const anew = "it was set aside and a new one was started";
  if (isNewer !== true) return `${file} was damaged; ${isRecovered ? "its other copy is in use" : anew}`;
  const left = "it was set aside, and the parts that this version understands are in use";
  return `${file} was written by a newer version; ${isRecovered ? left : anew}`;
}

/** Returns the damage that reading a file found in it or in its previous copy. */
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
