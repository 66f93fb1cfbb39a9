import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import type { Reporter, TestModule, TestRunEndReason } from "vitest/node";
import { z } from "zod";

const ROOT = join(import.meta.dirname, "../..");
const DURATIONS = join(ROOT, "test/durations.json");
/** Shorter files have no order. */
const MIN_SECONDS = 2;

/** Returns the seconds that test files took, by their paths from the root of the repository. */
export function readDurations(): ReadonlyMap<string, number> {
  const text = existsSync(DURATIONS) ? readFileSync(DURATIONS, "utf8") : "{}";
  return new Map(Object.entries(z.record(z.string(), z.number()).parse(JSON.parse(text))));
}

/** Returns the key of a file in `readDurations`. */
export const durationKey = (path: string): string => relative(ROOT, path);

/** Prints the seed of a failed run. With HOLDFAST_TEST_DURATIONS=1 writes the durations of the run's files. */
export class RunReporter implements Reporter {
  readonly #seed: string;

  constructor(seed: string) {
    this.#seed = seed;
  }

  onTestRunEnd(modules: readonly TestModule[], _errors: unknown, reason: TestRunEndReason): void {
    if (reason === "failed") {
      process.stderr.write(`The samples of this run: HOLDFAST_TEST_SEED=${this.#seed} repeats them.\n`);
    }
    if (process.env["HOLDFAST_TEST_DURATIONS"] === "1") writeDurations(modules);
  }
}

/** Keeps the durations of files that were not run. */
function writeDurations(modules: readonly TestModule[]): void {
  const durations = new Map(readDurations());
  for (const module of modules) {
    const seconds = Math.round(module.diagnostic().duration / 1000);
    if (seconds >= MIN_SECONDS) durations.set(durationKey(module.moduleId), seconds);
    else durations.delete(durationKey(module.moduleId));
  }
  const known = [...durations].filter(([path]) => existsSync(join(ROOT, path)));
  const sorted = known.toSorted(([a], [b]) => (a < b ? -1 : 1));
  writeFileSync(DURATIONS, `${JSON.stringify(Object.fromEntries(sorted), null, 2)}\n`);
}
