import type { Figure } from "./figures.ts";

export interface BenchOptions {
  /** Minutes for which an idle program is watched. */
  readonly minutes: number;
  /** Which parts are measured, by how they are announced; all of them when empty. Only `overlay`, `network` and `data-store` have parts. */
  readonly only: readonly string[];
  /** A directory of this run's own. */
  readonly dir: string;
  readonly say: (line: string) => void;
}

/** One area that can be measured. */
export interface Bench {
  readonly area: string;
  readonly about: string;
  run(options: BenchOptions): Promise<readonly Figure[]>;
}

/** The figures of each part that is wanted, one after the other. */
export async function parts(
  { only, say }: BenchOptions,
  measures: Readonly<Record<string, () => Promise<readonly Figure[]>>>,
): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const [name, measure] of Object.entries(measures)) {
    if (only.length > 0 && !only.includes(name)) continue;
    say(name);
    figures.push(...(await measure()));
  }
  return figures;
}
