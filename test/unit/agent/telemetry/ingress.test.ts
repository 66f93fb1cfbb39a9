import { expect, test } from "vitest";
import { bytesOf, nextIngress, risesOf, type IngressState } from "../../../../src/agent/telemetry/ingress.ts";
import { aMeshState, aPathState, uidOf } from "../../../support/overlay/mesh.ts";

const EVERY = 20_000;

/** Marks the samples at which the limit was reached. */
function reached(shares: readonly number[]): string {
  let state: IngressState = { isReached: false };
  return shares
    .map((share, at) => {
      state = nextIngress(state, share, at * EVERY, (at + 1) * EVERY);
      return state.isReached ? "!" : ".";
    })
    .join("");
}

const of = (count: number, share: number): readonly number[] => Array.from({ length: count }, () => share);

test.each([
  ["two minutes above", of(7, 0.96), ".....!!"],
  ["exactly at 95 %", of(8, 0.95), "........"],
  ["a lull begins anew", [...of(5, 1), 0.5, ...of(6, 1)], "...........!"],
  ["two minutes below 90 % end it", [...of(6, 1), ...of(7, 0.5)], ".....!!!!!!.."],
  ["between both it stays as it is", [...of(6, 1), ...of(8, 0.92)], ".....!!!!!!!!!"],
])("%s", (_, shares, expected) => {
  expect(reached(shares)).toBe(expected);
});

test("adds up the bytes of all tunnels; a restarted or new one counts no more than its own", () => {
  const client = { peer: uidOf(4), state: "up", since: 1, sessions: 1, bytesIn: 5, bytesOut: 6 } as const;
  const state = { ...aMeshState(), paths: [aPathState(), aPathState({ id: "wan2", bytesIn: 100 })], clients: [client] };
  expect([...bytesOf(state, "bytesIn").values()]).toEqual([10, 100, 5]);
  expect([...bytesOf(state, "bytesOut").values()]).toEqual([20, 20, 6]);
  const before = new Map([
    ["a", 100],
    ["b", 50],
    ["gone", 7],
  ]);
  const after = new Map([
    ["a", 130],
    ["b", 20],
    ["new", 1000],
  ]);
  expect(risesOf(before, after)).toBe(50);
});
