import { expect } from "vitest";

/**
 * Runs a test for several cases at the same time, within one test of the runner: its hooks, such as `onTestFinished`, do not know which of
 * several concurrent tests they are called from. Fails with every case that failed.
 */
export async function atOnce<T>(
  cases: readonly T[],
  nameOf: (one: T) => string,
  run: (one: T) => Promise<unknown>,
): Promise<void> {
  const outcomes = await Promise.all(
    cases.map(async (one) => {
      try {
        await run(one);
        return `${nameOf(one)}: passed`;
      } catch (error) {
        return `${nameOf(one)}: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`;
      }
    }),
  );
  expect(outcomes).toEqual(cases.map((one) => `${nameOf(one)}: passed`));
}
