import type { FakeClock } from "./fake-clock.ts";

const LIMIT_MS = 120_000;
/** Turns of the event loop after each step. */
const TURNS = 10;

/**
 * Advances the clock by steps until `probe` returns something other than undefined or false. After each step, sockets and files get a few
 * milliseconds of real time; `waitFor` would pause longer with every step.
 */
export async function advanceUntil<T>(
  what: string,
  clock: FakeClock,
  probe: () => T,
  stepMs = 1000,
): Promise<Exclude<T, undefined | false>> {
  const end = performance.now() + LIMIT_MS;
  for (;;) {
    const value = probe();
    if (value !== undefined && value !== false) return value as Exclude<T, undefined | false>;
    if (performance.now() > end) throw new Error(`waited ${LIMIT_MS} ms in vain for: ${what}`);
    await clock.advance(stepMs);
    await new Promise((resolve) => setTimeout(resolve, 4));
    // A busy machine runs the loop once in that time: everything sent by then must arrive before the clock moves.
    for (let turn = 0; turn < TURNS; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  }
}
