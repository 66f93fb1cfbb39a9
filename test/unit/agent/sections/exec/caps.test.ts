import { expect, test } from "vitest";
import { capsNotices, planCaps } from "../../../../../src/agent/sections/exec/caps.ts";

const last = (actual: object | undefined, warnings: readonly string[] = []) => ({
  wanted: { cpuMax: 150, ioRbps: 5 },
  actual,
  warnings,
});

test.each([
  ["nothing is known of the engine", { cpuMax: 10 }, undefined, undefined],
  ["there is no group and none is needed", {}, { actual: undefined, last: undefined }, undefined],
  ["a group is to be made", { cpuMax: 10 }, { actual: undefined, last: undefined }, { cpuMax: 10 }],
  ["they are as wanted", { cpuMax: 10 }, { actual: { cpuMax: 10 }, last: undefined }, undefined],
  ["somebody has changed them", { cpuMax: 10 }, { actual: { cpuMax: 90 }, last: undefined }, { cpuMax: 10 }],
  ["they are cleared", {}, { actual: { memMaxBytes: 4096 }, last: undefined }, {}],
  ["a part cannot be had", last(undefined).wanted, { actual: { cpuMax: 150 }, last: last({ cpuMax: 150 }) }, undefined],
  ["nothing can be had", last(undefined).wanted, { actual: undefined, last: last(undefined) }, undefined],
  [
    "what could be had was taken away",
    last(undefined).wanted,
    { actual: {}, last: last({ cpuMax: 150 }) },
    last({}).wanted,
  ],
  [
    "others are wanted than could not be had",
    { ioRbps: 7 },
    { actual: undefined, last: last(undefined) },
    { ioRbps: 7 },
  ],
])("limits if %s", (_case, wanted, seen, limits) => {
  expect(planCaps(wanted, seen).map((step) => step.limits)).toEqual(limits === undefined ? [] : [limits]);
});

test("reports what cannot be limited as long as it is wanted", () => {
  const seen = { actual: undefined, last: last(undefined, ["io.max is not limited"]) };
  expect(capsNotices({ cpuMax: 150, ioRbps: 5 }, seen)).toEqual([
    { path: "exec.limits", code: "limits-unsupported", message: "exec.limits: io.max is not limited" },
  ]);
  expect(capsNotices({ cpuMax: 150 }, seen)).toEqual([]);
  expect(capsNotices({}, undefined)).toEqual([]);
});
