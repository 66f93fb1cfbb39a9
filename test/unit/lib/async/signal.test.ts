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
  const heard: string[] = [];
  signal.changed((value) => heard.push(`first ${value}`));
  signal.changed((value) => heard.push(`second ${value} ${signal.current}`));
  expect(heard).toEqual([]);
  signal.set("b");
  signal.set("b");
  expect(heard).toEqual(["first b", "second b b", "first b", "second b b"]);
});

test("a listener that is removed is not called again, and the same function may be added twice", () => {
  const signal = new Signal(0);
  const heard: number[] = [];
  const listener = (value: number): void => void heard.push(value);
  const remove = signal.changed(listener);
  signal.changed(listener);
  signal.set(1);
  remove();
  remove();
  signal.set(2);
  expect(heard).toEqual([1, 1, 2]);
});
