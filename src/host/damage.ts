import type { Loaded } from "./state-file.ts";

/** A file of the state directory that was found damaged and set aside. */
export interface Damage {
  /** Relative to the state directory. */
  readonly file: string;
  /** Whether the other copy of it is in force. */
  readonly isRecovered: boolean;
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
