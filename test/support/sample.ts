import { createHash } from "node:crypto";

/** Whether everything is asked for: every kill point, and what takes long. */
export const TESTS_ALL = process.env["HOLDFAST_TEST_ALL"] === "1";

/** How many runs a property has: a quarter by default, since each run of the tests draws others. */
export const runs = (all: number): number => (TESTS_ALL ? all : Math.max(20, Math.ceil(all / 4)));

/** What samples of this run are drawn by: HOLDFAST_TEST_SEED, or the date (UTC). */
export const SEED = process.env["HOLDFAST_TEST_SEED"] ?? new Date().toISOString().slice(0, 10);

/**
 * One item of each of `size` equal ranges, so that a sample covers all of them evenly; all items when everything is asked for. Which ones
 * depends on the seed and on `label`: over some weeks every item has its turn.
 */
export function sampleOf<T>(items: readonly T[], size: number, label: string): readonly T[] {
  if (TESTS_ALL || items.length <= size) return items;
  return Array.from({ length: size }, (_, i) => {
    const [from, to] = [Math.floor((i * items.length) / size), Math.floor(((i + 1) * items.length) / size)];
    const random = createHash("sha256").update(`${SEED} ${label} ${i}`).digest().readUInt32BE();
    return items.slice(from, to)[random % (to - from)];
  }).flatMap((item) => (item === undefined ? [] : [item]));
}
