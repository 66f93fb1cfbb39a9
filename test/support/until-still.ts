import { waitFor } from "./wait-for.ts";

/** Number of equal readings in a row: more than a quarter of a second. */
const LOOKS = 15;

/** Waits until a number is above 0 and stays the same. */
export function untilStill(what: string, read: () => number | Promise<number>): Promise<number> {
  let last = -1;
  let polls = 0;
  return waitFor(what, async () => {
    const value = await read();
    polls = value > 0 && value === last ? polls + 1 : 0;
    last = value;
    return polls >= LOOKS && value;
  });
}

/** Runs what is due and its consequences: a number of turns of the event loop, with timers of 1 ms. */
export async function someTurns(count = 20): Promise<void> {
  for (let turn = 0; turn < count; turn += 1) await new Promise((resolve) => setTimeout(resolve, 1));
}
