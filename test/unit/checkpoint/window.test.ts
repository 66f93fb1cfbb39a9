import { describe, expect, test } from "vitest";
import {
  afterEvent,
  isExpired,
  leftOf,
  type Window,
  type WindowEnd,
  type WindowEvent,
} from "../../../src/checkpoint/window.ts";

const BOOT = "boot-1";
const window: Window = {
  mode: "save",
  state: "applying",
  bootId: BOOT,
  openedAt: 1000,
  deadlineAt: 121_000,
  deadline: 500_000,
  seconds: 120,
  owner: { pid: 1, startTicks: "1" },
  before: { session: true, gateways: [] },
  versions: { node: 2 },
  guards: { network: { interfaces: [] } },
  isLocal: false,
};
const IN_TIME = { bootId: BOOT, sinceBoot: 499_999 };
const LATE = { bootId: BOOT, sinceBoot: 500_000 };
const OTHER_BOOT = { bootId: "boot-2", sinceBoot: 10 };

type Row = readonly [mode: Window["mode"], state: Window["state"], event: WindowEvent["type"], end: string];

/** Returns `store` with the stored state, `restore` with its reason. */
function textOf(end: WindowEnd): string {
  if (end.do === "store") return `store ${end.window.state}`;
  return end.do === "restore" ? `restore ${end.reason}` : end.do;
}

describe("before the deadline", () => {
  test.each<Row>([
    ["save", "applying", "applied", "store proving"],
    ["save", "applying", "proved", "nothing"],
    ["save", "applying", "keep", "nothing"],
    ["save", "applying", "tick", "nothing"],
    ["save", "applying", "found", "restore interrupted"],
    ["save", "applying", "step-failed", "restore step-failed"],
    ["save", "proving", "applied", "nothing"],
    ["save", "proving", "proved", "confirm"],
    ["save", "proving", "keep", "confirm"],
    ["save", "proving", "revert", "restore reverted"],
    ["save", "proving", "superseded", "restore superseded"],
    ["save", "proving", "tick", "nothing"],
    ["save", "proving", "found", "restore interrupted"],
    ["try", "applying", "applied", "store proving"],
    ["try", "proving", "proved", "store awaiting-keep"],
    ["try", "proving", "keep", "confirm"],
    ["try", "proving", "found", "restore interrupted"],
    ["try", "awaiting-keep", "proved", "nothing"],
    ["try", "awaiting-keep", "keep", "confirm"],
    ["try", "awaiting-keep", "tick", "nothing"],
    ["try", "awaiting-keep", "revert", "restore reverted"],
    ["try", "awaiting-keep", "superseded", "restore superseded"],
    ["try", "awaiting-keep", "found", "nothing"],
  ])("%s, %s: %s → %s", (mode, state, type, end) => {
    expect(textOf(afterEvent({ ...window, mode, state }, { type }, IN_TIME))).toBe(end);
  });
});

describe("after the deadline", () => {
  test.each<Row>([
    ["save", "applying", "applied", "restore not-proven"],
    ["save", "proving", "proved", "restore not-proven"],
    ["save", "proving", "keep", "restore not-proven"],
    ["save", "proving", "tick", "restore not-proven"],
    ["save", "proving", "found", "restore not-proven"],
    ["try", "proving", "proved", "restore not-proven"],
    ["try", "awaiting-keep", "tick", "restore not-kept"],
    ["try", "awaiting-keep", "keep", "restore not-kept"],
    ["try", "awaiting-keep", "found", "restore not-kept"],
    ["try", "awaiting-keep", "revert", "restore reverted"],
  ])("%s, %s: %s → %s", (mode, state, type, end) => {
    expect(textOf(afterEvent({ ...window, mode, state }, { type }, LATE))).toBe(end);
  });
});

test.each<WindowEvent["type"]>(["applied", "proved", "keep", "revert", "superseded", "step-failed", "tick", "found"])(
  "a reboot always ends it: %s",
  (type) => {
    for (const state of ["applying", "proving", "awaiting-keep"] as const) {
      expect(textOf(afterEvent({ ...window, state }, { type }, OTHER_BOOT))).toBe("restore rebooted");
    }
  },
);

test("the remaining time depends only on the boot-time clock", () => {
  expect(leftOf(window, { bootId: BOOT, sinceBoot: 380_000 })).toBe(120_000);
  expect(leftOf(window, LATE)).toBe(0);
  expect(leftOf(window, OTHER_BOOT)).toBe(0);
  // Setting the wall clock moves neither end.
  const set = { ...window, openedAt: 0, deadlineAt: 1 };
  expect([isExpired(set, IN_TIME), isExpired(set, LATE)]).toEqual([false, true]);
});
