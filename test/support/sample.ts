import { createHash } from "node:crypto";

/** Whether everything is requested: every kill point, and long tests. */
export const TESTS_ALL = process.env["HOLDFAST_TEST_ALL"] === "1";

/** Number of runs of a property: an eighth, at most 300, by default, since each test run draws others. */
export const runs = (all: number): number => (TESTS_ALL ? all : Math.min(300, Math.max(20, Math.ceil(all / 8))));

/** Seed of this run's samples: HOLDFAST_TEST_SEED, or the date (UTC). */
export const SEED = process.env["HOLDFAST_TEST_SEED"] ?? new Date().toISOString().slice(0, 10);

const DAY_MS = 86_400_000;

/**
 * Reports whether a long test that varies another one is due: on one day in `of`, which differs by label, and always when everything is
 * requested.
 */
export function isDue(label: string, of = 3): boolean {
  const date = Date.parse(SEED);
  const day = Number.isNaN(date) ? numberOf(SEED) : Math.floor(date / DAY_MS);
  return TESTS_ALL || (day + numberOf(label)) % of === 0;
}

const numberOf = (text: string): number => createHash("sha256").update(text).digest().readUInt32BE();

/**
 * Returns one item of each of `size` equal ranges, for an even sample; all items when everything is requested. The choice depends on the
 * seed and on `label`, so that runs of other days cover the other items.
 */
export function sampleOf<T>(items: readonly T[], size: number, label: string): readonly T[] {
  if (TESTS_ALL || items.length <= size) return items;
  return Array.from({ length: size }, (_, i) => {
    const [from, to] = [Math.floor((i * items.length) / size), Math.floor(((i + 1) * items.length) / size)];
    return items.slice(from, to)[numberOf(`${SEED} ${label} ${i}`) % (to - from)];
  }).flatMap((item) => (item === undefined ? [] : [item]));
}
