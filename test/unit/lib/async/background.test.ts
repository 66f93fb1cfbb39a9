import { expect, test } from "vitest";
import { Background } from "../../../../src/lib/async/background.ts";

test("work beyond the limit is dropped, a failure is reported, and the end is waited for", async () => {
  const failures: string[] = [];
  const background = new Background({ limit: 2, onFailure: ({ message }) => failures.push(message) });
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  const done: number[] = [];
  const work = (n: number) => () => opened.then(() => void done.push(n));
  expect(background.run(work(1))).toBe(true);
  expect(background.run(() => opened.then(() => Promise.reject(new Error("full"))))).toBe(true);
  expect(background.run(work(3))).toBe(false);
  const settled = background.settled();
  open();
  await settled;
  expect([done, failures]).toEqual([[1], ["full"]]);
  expect(background.run(work(4))).toBe(true);
  await background.settled();
  expect(done).toEqual([1, 4]);
});
