import { expect, test } from "vitest";
import { inTurns } from "../../../../src/lib/async/in-turns.ts";
import { deferred } from "../../../support/deferred.ts";

test("gives results in the order of the items, whoever is done first", async () => {
  const gates = [deferred<string>(), deferred<string>(), deferred<string>()];
  const all = inTurns([0, 1, 2], 3, (at) => gates[at]?.promise ?? Promise.resolve(""));
  gates[2]?.resolve("c");
  gates[0]?.resolve("a");
  gates[1]?.resolve("b");
  expect(await all).toEqual(["a", "b", "c"]);
});

test("limits the concurrency", async () => {
  let atWork = 0;
  let most = 0;
  await inTurns(
    Array.from({ length: 20 }, (_, at) => at),
    4,
    async () => {
      most = Math.max(most, (atWork += 1));
      await Promise.resolve();
      atWork -= 1;
    },
  );
  expect(most).toBe(4);
});

test("the first failure fails all", async () => {
  const failing = inTurns([1, 2], 1, (item) => Promise.reject(new Error(`no ${item}`)));
  await expect(failing).rejects.toThrow("no 1");
});

test("no items are done at once", async () => {
  expect(await inTurns([], 4, () => Promise.resolve(1))).toEqual([]);
});
