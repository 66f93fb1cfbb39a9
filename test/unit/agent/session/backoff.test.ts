import { expect, test } from "vitest";
import { retryDelay, type Ending } from "../../../../src/agent/session/backoff.ts";

const failed: Ending = { kind: "failed" };
const most = () => 0.999999;
const least = () => 0;

test.each([
  { name: "just lost, least", ending: failed, failures: 0, offlineMs: 0, random: least, low: 0, high: 0 },
  { name: "just lost, most", ending: failed, failures: 0, offlineMs: 0, random: most, low: 9999, high: 10_000 },
  { name: "never below the floor", ending: failed, failures: 1, offlineMs: 5000, random: least, low: 500, high: 500 },
  {
    name: "first failure doubles the base",
    ending: failed,
    failures: 1,
    offlineMs: 5000,
    random: most,
    low: 3999,
    high: 4000,
  },
  {
    name: "capped at a minute",
    ending: failed,
    failures: 30,
    offlineMs: 5000,
    random: most,
    low: 59_999,
    high: 60_000,
  },
  {
    name: "capped at two after ten",
    ending: failed,
    failures: 30,
    offlineMs: 600_001,
    random: most,
    low: 119_999,
    high: 120_000,
  },
  {
    name: "not authentic",
    ending: { kind: "not-authentic" } as Ending,
    failures: 1,
    offlineMs: 0,
    random: most,
    low: 59_999,
    high: 60_000,
  },
  {
    name: "superseded",
    ending: { kind: "superseded" } as Ending,
    failures: 1,
    offlineMs: 0,
    random: least,
    low: 30_000,
    high: 30_000,
  },
  {
    name: "deleted",
    ending: { kind: "deleted" } as Ending,
    failures: 1,
    offlineMs: 0,
    random: () => 0.5,
    low: 3_600_000,
    high: 3_600_000,
  },
  {
    name: "asked to wait",
    ending: { kind: "asked-to-wait", delayMs: 120_000 } as Ending,
    failures: 1,
    offlineMs: 0,
    random: least,
    low: 120_500,
    high: 120_500,
  },
  {
    name: "asked for ever",
    ending: { kind: "asked-to-wait", delayMs: 1e12 } as Ending,
    failures: 1,
    offlineMs: 0,
    random: least,
    low: 3_600_500,
    high: 3_600_500,
  },
  {
    name: "asked for the past",
    ending: { kind: "asked-to-wait", delayMs: -5 } as Ending,
    failures: 1,
    offlineMs: 0,
    random: least,
    low: 500,
    high: 500,
  },
])("$name", ({ ending, failures, offlineMs, random, low, high }) => {
  const delay = retryDelay({ ending, failures, offlineMs }, random);
  expect(delay).toBeGreaterThanOrEqual(low);
  expect(delay).toBeLessThanOrEqual(high);
});
