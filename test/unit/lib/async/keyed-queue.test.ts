import { expect, test } from "vitest";
import { KeyedQueue } from "../../../../src/lib/async/keyed-queue.ts";

/** Lets everything run that waits for nothing else. */
const settle = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

function gate() {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { open, opened };
}

test("tasks of one key run one after another, those of another key meanwhile, and a failure is its own", async () => {
  const queue = new KeyedQueue();
  const done: string[] = [];
  const { open, opened } = gate();
  const first = queue.run("a", async () => {
    await opened;
    done.push("a1");
    throw new Error("refused");
  });
  const failed = expect(first).rejects.toThrow("refused");
  const second = queue.run("a", async () => void done.push("a2"));
  await queue.run("b", async () => void done.push("b1"));
  expect([done, queue.count("a"), queue.count("b")]).toEqual([["b1"], 2, 0]);
  open();
  await failed;
  await second;
  await settle();
  expect([done, queue.count("a")]).toEqual([["b1", "a1", "a2"], 0]);
});

test("a task of several keys waits for all of them and holds all of them, and two such tasks do not lock each other out", async () => {
  const queue = new KeyedQueue();
  const done: string[] = [];
  const { open, opened } = gate();
  const before = queue.run("b", () => opened.then(() => void done.push("before")));
  const both = queue.runAll(["a", "b"], async () => {
    await settle();
    done.push("both");
  });
  const reversed = queue.runAll(["b", "a"], async () => void done.push("reversed"));
  const after = queue.run("a", async () => void done.push("after"));
  await settle();
  expect(done).toEqual([]);
  open();
  await Promise.all([before, both, reversed, after]);
  expect(done).toEqual(["before", "both", "reversed", "after"]);
});

test("what was queued is waited for, and what comes later is not", async () => {
  const queue = new KeyedQueue();
  const early = gate();
  const late = gate();
  const first = queue.run("a", () => early.opened);
  let isSettled = false;
  const settled = queue.settled().then(() => (isSettled = true));
  const second = queue.run("a", () => late.opened);
  await settle();
  expect(isSettled).toBe(false);
  early.open();
  await first;
  await settled;
  late.open();
  await second;
});
