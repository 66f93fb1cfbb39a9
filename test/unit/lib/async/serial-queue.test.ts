import { expect, test } from "vitest";
import { serialQueue } from "../../../../src/lib/async/serial-queue.ts";

test("a task starts when the one before has ended, in the order of the calls", async () => {
  const inTurn = serialQueue();
  const events: string[] = [];
  let end = (_result: string): void => undefined;
  const first = new Promise<string>((resolve) => (end = resolve));
  const done = [
    inTurn(() => {
      events.push("first begins");
      return first;
    }),
    inTurn(() => {
      events.push("second begins");
      return Promise.resolve("second");
    }),
  ];
  await Promise.resolve();
  await Promise.resolve();
  expect(events).toEqual(["first begins"]);
  end("first");
  expect(await Promise.all(done)).toEqual(["first", "second"]);
  expect(events).toEqual(["first begins", "second begins"]);
});

test("a task that fails rejects its own promise, and the next runs", async () => {
  const inTurn = serialQueue();
  const failed = inTurn(() => Promise.reject(new Error("disk full")));
  const next = inTurn(() => Promise.resolve(2));
  await expect(failed).rejects.toThrow("disk full");
  expect(await next).toBe(2);
});
