import type { Figure } from "./figures.ts";

export interface BenchOptions {
  /** How long an idle program is watched. */
  readonly minutes: number;
  /** Which parts are measured, by how they are announced; all of them when empty. Only `overlay` has parts. */
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
