import { median, type Bar, type Figure } from "../figures.ts";

export interface RoundsOptions {
  readonly rounds: number;
  readonly warmUp: number;
}

/**
 * Measures each contender in every round, one after the other, each round beginning with another one; gives the values of each by
 * name, in the order of the rounds. Those of the warm-up are left out.
 */
export async function interleaved<Name extends string, T>(
  measures: Readonly<Record<Name, () => Promise<T>>>,
  { rounds, warmUp }: RoundsOptions,
): Promise<Readonly<Record<Name, readonly T[]>>> {
  const names = Object.keys(measures) as Name[];
  const values = Object.fromEntries(names.map((name) => [name, [] as T[]])) as Record<Name, T[]>;
  for (let round = 0; round < warmUp + rounds; round += 1) {
    for (let at = 0; at < names.length; at += 1) {
      const name = names[(at + round) % names.length];
      if (name === undefined) continue;
      const value = await measures[name]();
      if (round >= warmUp) values[name].push(value);
    }
  }
  return values;
}

/** A figure of medians, its ratio the median of those of the rounds. */
export function compared(
  what: string,
  unit: string,
  here: readonly number[],
  peer: { readonly name: string; readonly values: readonly number[] },
  bar?: Bar,
): Figure {
  return {
    what,
    value: median(here),
    unit,
    peer: { name: peer.name, value: median(peer.values) },
    ratio: median(here.map((value, round) => value / (peer.values[round] ?? Number.NaN))),
    ...(bar === undefined ? {} : { bar }),
  };
}
