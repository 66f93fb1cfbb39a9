import { describe, expect, test } from "vitest";
import { assessRun, RunRecord, stoppedRun } from "../../../../src/agent/telemetry/run-record.ts";
import type { Run } from "../../../../src/agent/telemetry/run-record.ts";

const RUN: Run = { bootId: "boot-1", packageVersion: "1.0", startupErrors: [], startedAt: 1_795_216_193 };
const PREVIOUS: RunRecord = { bootId: "boot-1", packageVersion: "1.0", isStopped: true };
const typesOf = (previous: RunRecord | undefined, run: Partial<Run> = {}): string[] =>
  assessRun(previous, { ...RUN, ...run }).notices.map(({ eventType }) => eventType);

describe("a start reports about the previous run", () => {
  test("nothing on the first start and after a clean restart", () => {
    expect(typesOf(undefined)).toEqual([]);
    expect(typesOf(PREVIOUS)).toEqual([]);
  });

  test("a reboot, an unclean stop, and both after a power cut", () => {
    expect(typesOf(PREVIOUS, { bootId: "boot-2" })).toEqual(["Node Device Reboot"]);
    expect(typesOf({ ...PREVIOUS, isStopped: false })).toEqual(["Node Stop Error"]);
    expect(typesOf({ ...PREVIOUS, isStopped: false }, { bootId: "boot-2" })).toEqual([
      "Node Device Reboot",
      "Node Stop Error",
    ]);
  });

  test("no reboot if a boot id is unknown", () => {
    expect(typesOf({ isStopped: true })).toEqual([]);
    expect(typesOf(PREVIOUS, { bootId: undefined })).toEqual([]);
  });

  test("an update is audited once", () => {
    const first = assessRun({ ...PREVIOUS, packageVersion: "0.9" }, RUN);
    expect(first.audits).toEqual([
      { category: "Node Update", value: "Updated from 0.9 to 1.0", timestamp: 1_795_216_193 },
    ]);
    expect(assessRun(stoppedRun(first.record), RUN).audits).toEqual([]);
    expect(assessRun(undefined, RUN).audits).toEqual([]);
  });
});

test("errors of this start with their texts, and a clean start clears them", () => {
  const failed = assessRun(PREVIOUS, { ...RUN, startupErrors: Array.from({ length: 100 }, () => "x".repeat(1000)) });
  expect(failed.raises).toMatchObject([{ eventType: "Node Startup Error", level: "CRITICAL" }]);
  expect(failed.clears).toEqual([]);
  expect(JSON.stringify(failed.raises).length).toBeLessThan(8192);
  const clean = assessRun(PREVIOUS, RUN);
  expect(clean.raises).toEqual([]);
  expect(clean.clears).toMatchObject([{ eventType: "Node Startup Error", object: failed.raises[0]?.object }]);
});

test("the previous version if the current one is unknown", () => {
  const unknown = assessRun(PREVIOUS, { ...RUN, packageVersion: undefined });
  expect(unknown.audits).toEqual([]);
  expect(unknown.record.packageVersion).toBe("1.0");
});

test("the record counts as unclean until the run reports its stop", () => {
  const { record } = assessRun(undefined, RUN);
  expect(RunRecord.parse(record)).toEqual({ bootId: "boot-1", packageVersion: "1.0", isStopped: false });
  expect(stoppedRun(record).isStopped).toBe(true);
});
