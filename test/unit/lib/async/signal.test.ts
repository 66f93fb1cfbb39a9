import { expect, test } from "vitest";
import { Signal } from "../../../../src/lib/async/signal.ts";

test("a signal has its initial value until another one is set", () => {
  const signal = new Signal(1);
  expect(signal.current).toBe(1);
  signal.set(2);
  expect(signal.current).toBe(2);
});

test("listeners are called in the order in which they were added, for the same value too", () => {
  const signal = new Signal("a");
  const received: string[] = [];
  signal.changed((value) => received.push(`first ${value}`));
  signal.changed((value) => received.push(`second ${value} ${signal.current}`));
  expect(received).toEqual([]);
  signal.set("b");
  signal.set("b");
  expect(received).toEqual(["first b", "second b b", "first b", "second b b"]);
});

test("a listener that is removed is not called again, and the same function may be added twice", () => {
  const signal = new Signal(0);
  const received: number[] = [];
  const listener = (value: number): void => void received.push(value);
  const remove = signal.changed(listener);
  signal.changed(listener);
  signal.set(1);
  remove();
  remove();
  signal.set(2);
  expect(received).toEqual([1, 1, 2]);
});
