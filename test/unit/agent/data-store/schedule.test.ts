import { expect, test } from "vitest";
import {
  dueOf,
  refusalOf,
  withoutSlot,
  withSlot,
  withStanding,
  type Schedule,
} from "../../../../src/agent/data-store/schedule.ts";

const limits = { maxRunning: 2, maxWaiting: 3 };
const queued = (...ids: readonly string[]): Schedule => ids.map((id) => ({ id, target: `t-${id}`, is: "queued" }));

test("starts as many as may run at a time, in order of arrival", () => {
  let schedule = queued("a", "b", "c");
  expect(dueOf(schedule, limits)).toEqual(["a", "b"]);
  for (const id of dueOf(schedule, limits)) schedule = withStanding(schedule, id, "running");
  expect(dueOf(schedule, limits)).toEqual([]);
  schedule = withoutSlot(schedule, "b");
  expect(dueOf(schedule, limits)).toEqual(["c"]);
});

test("one that waits for a retry delays no other", () => {
  const schedule = withStanding(queued("a", "b", "c"), "a", "held");
  expect(dueOf(schedule, limits)).toEqual(["b", "c"]);
});

test("runs one at a time for each target, even while it waits for a retry", () => {
  for (const is of ["queued", "held", "running"] as const) {
    const schedule = withSlot([], { id: "a", target: "file:x", is });
    expect(refusalOf(schedule, "file:x", limits)).toEqual({ taken: "a" });
    expect(refusalOf(schedule, "file:y", limits)).toBeUndefined();
  }
});

test("limits the number that may wait", () => {
  expect(refusalOf(queued("a", "b", "c", "d"), "t", limits)).toBeUndefined();
  expect(refusalOf(queued("a", "b", "c", "d", "e"), "t", limits)).toEqual({ full: 3 });
});
