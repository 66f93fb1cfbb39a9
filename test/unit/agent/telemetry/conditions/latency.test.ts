import { expect, test } from "vitest";
import { INITIAL_LATENCY, nextLatency } from "../../../../../src/agent/telemetry/conditions/latency.ts";

const LIMIT = { maxLatencyMs: 100, triggerCount: 3, recoverCount: 2 };

/** Marks the samples at which it was triggered. */
function triggered(samples: readonly number[], limit = LIMIT): string {
  let state = INITIAL_LATENCY;
  return samples.map((rtt) => ((state = nextLatency(state, limit, rtt)).isTriggered ? "!" : ".")).join("");
}

test.each([
  ["too long for long enough", [101, 101, 101, 101], "..!!"],
  ["exactly at the limit", [100, 100, 100, 100], "...."],
  ["a good one between begins anew", [200, 200, 50, 200, 200, 200], ".....!"],
  ["good for long enough ends it", [200, 200, 200, 100, 100, 200], "..!!.."],
  ["a bad one between keeps it", [200, 200, 200, 50, 200, 50, 50], "..!!!!."],
])("%s", (_, samples, expected) => {
  expect(triggered(samples)).toBe(expected);
});

test("one sample in each direction may be enough", () => {
  expect(triggered([101, 99, 101], { maxLatencyMs: 100, triggerCount: 1, recoverCount: 1 })).toBe("!.!");
});
