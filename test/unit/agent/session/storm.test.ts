import { expect, test } from "vitest";
import { TESTS_ALL } from "../../../support/sample.ts";
import { simulateStorm } from "../../../support/control-plane/storm.ts";

const NODES = TESTS_ALL ? 10_000 : 2000;

test.each([
  { name: "a restart of two seconds", outageMs: 2000, mean: 1.4, peak: 0.2, back: 30_000 },
  { name: "five minutes", outageMs: 300_000, mean: 16, peak: 0.05, back: 121_000 },
  { name: "two hours", outageMs: 7_200_000, mean: 140, peak: 0.05, back: 121_000 },
])("$name: few attempts for each node, no peak after the outage, all reconnected", ({ outageMs, mean, peak, back }) => {
  const { attempts, recoveryPeak, allBackAt } = simulateStorm(NODES, outageMs);
  expect(attempts).toBeLessThan(mean);
  expect(recoveryPeak).toBeLessThan(NODES * peak);
  expect(allBackAt).toBeLessThan(back);
});
