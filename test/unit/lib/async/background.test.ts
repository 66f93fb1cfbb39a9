import { expect, test } from "vitest";
import { Background } from "../../../../src/lib/async/background.ts";
import { waitFor } from "../../../support/wait-for.ts";

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

test("work that fails for a while is repeated until it is done, and once more at the end", async () => {
  const failures: string[] = [];
  const pauses: (() => void)[] = [];
  const clock = {
    sleep: (_ms: number, signal: AbortSignal) =>
      new Promise<void>((resolve, reject) => {
        pauses.push(resolve);
        signal.addEventListener("abort", () => reject(new Error("ended")));
      }),
  };
  const isTemporary = (error: unknown): boolean => error instanceof Error && error.message === "away";
  const onFailure = ({ message }: Error): void => void failures.push(message);
  const background = new Background({ limit: 2, onFailure, repeat: { pauseMs: 1, clock, isTemporary } });
  let runs = 0;
  let isAway = true;
  const task = async (): Promise<void> => {
    runs += 1;
    if (isAway) throw new Error("away");
  };
  background.run(task);
  await waitFor("a pause", () => pauses.length === 1);
  pauses[0]?.();
  await waitFor("another pause", () => pauses.length === 2);
  isAway = false;
  pauses[1]?.();
  await waitFor("the end", () => runs === 3);
  background.run(() => Promise.reject(new Error("wrong")));
  await waitFor("its report", () => failures.length === 1);
  isAway = true;
  background.run(task);
  await waitFor("a third pause", () => pauses.length === 3);
  await background.settled();
  expect([runs, failures]).toEqual([5, ["wrong", "away"]]);
});
