import { expect, test } from "vitest";
import { runAll } from "../../../src/transfer/s3-turns.ts";

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("works on all items in order, with limited concurrency", async () => {
  const begun: number[] = [];
  let running = 0;
  let most = 0;
  await runAll([1, 2, 3, 4, 5, 6, 7], 3, new AbortController().signal, async (item) => {
    begun.push(item);
    running += 1;
    most = Math.max(most, running);
    await turn();
    running -= 1;
  });
  expect(begun).toEqual([1, 2, 3, 4, 5, 6, 7]);
  expect(most).toBe(3);
});

test("the first failure ends the others, and is thrown when they have ended", async () => {
  let ended = 0;
  const begun: number[] = [];
  const work = runAll([1, 2, 3, 4, 5], 2, new AbortController().signal, async (item, signal) => {
    begun.push(item);
    await turn();
    if (item === 1) throw new Error("the first");
    while (!signal.aborted) await turn();
    await turn();
    ended += 1;
    throw new Error("ended");
  });
  await expect(work).rejects.toThrow("the first");
  expect(ended).toBe(1);
  expect(begun).toEqual([1, 2]);
});

test("an abort is thrown as its reason, even when nothing is left to do", async () => {
  const ending = new AbortController();
  const work = runAll([1, 2], 1, ending.signal, async () => ending.abort(new Error("cancelled")));
  await expect(work).rejects.toThrow("cancelled");
});
