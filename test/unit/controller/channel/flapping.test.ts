import { expect, test } from "vitest";
import {
  countCycle,
  FLAPPING_WINDOW_MS,
  settle,
  STABLE,
  type Flapping,
} from "../../../../src/controller/channel/flapping.ts";

/** Counts cycles at these times and answers after which ones (from 1) the event was raised. */
function raisedAt(
  times: readonly number[],
  state: Flapping = STABLE,
): { readonly raised: number[]; readonly state: Flapping } {
  const raised: number[] = [];
  let current = state;
  for (const [index, time] of times.entries()) {
    const next = countCycle(current, time);
    current = next.state;
    if (next.raise) raised.push(index + 1);
  }
  return { raised, state: current };
}

const every = (count: number, stepMs: number): number[] => Array.from({ length: count }, (_, i) => i * stepMs);

test.each([
  ["nine quick cycles", every(9, 1000), []],
  ["ten quick cycles", every(10, 1000), [10]],
  ["ten cycles within exactly the window", every(10, Math.floor(FLAPPING_WINDOW_MS / 10)), [10]],
  ["slow cycles without end", every(100, Math.ceil(FLAPPING_WINDOW_MS / 9)), []],
  ["129 cycles", every(129, 1000), [10]],
  ["130 cycles", every(130, 1000), [10, 130]],
  ["250 cycles", every(250, 1000), [10, 130, 250]],
])("%s", (_what, times, expected) => {
  expect(raisedAt(times).raised).toEqual(expected);
});

test("it remembers ten times at most, and nothing once it is quiet", () => {
  const { state } = raisedAt(every(500, 10));
  expect(state.recent).toHaveLength(10);
  expect(settle(state, 5000)).toEqual({ state, isOver: false });
  expect(settle(state, 5000 + FLAPPING_WINDOW_MS)).toEqual({ state: undefined, isOver: true });
  expect(settle(raisedAt([0]).state, FLAPPING_WINDOW_MS)).toEqual({ state: undefined, isOver: false });
});

test("after a quiet time it counts from the beginning", () => {
  const { state } = raisedAt(every(10, 1000));
  const later = FLAPPING_WINDOW_MS * 2;
  expect(
    raisedAt(
      every(10, 1000).map((time) => time + later),
      state,
    ).raised,
  ).toEqual([10]);
});
