import { expect, test } from "vitest";
import { oneAtATime } from "../../../../src/lib/async/one-at-a-time.ts";
import { deferred, type Deferred } from "../../../support/deferred.ts";
import { settle } from "../../../support/fake-clock.ts";

test("a call gets a run that starts after it, and waiting calls share one", async () => {
  const runs: Deferred<number>[] = [];
  const once = oneAtATime(() => {
    const run = deferred<number>();
    runs.push(run);
    return run.promise;
  });
  const [first, second, third] = [once(), once(), once()];
  await settle();
  expect(runs).toHaveLength(1);
  runs[0]?.resolve(1);
  expect(await first).toBe(1);
  await settle();
  expect(runs).toHaveLength(2);
  const fourth = once();
  runs[1]?.resolve(2);
  expect(await Promise.all([second, third])).toEqual([2, 2]);
  await settle();
  expect(runs).toHaveLength(3);
  runs[2]?.reject(new Error("no"));
  await expect(fourth).rejects.toThrow("no");
  const fifth = once();
  runs[3]?.resolve(5);
  expect(await fifth).toBe(5);
});
