import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { openCaps } from "../../../../../src/agent/wiring/containers/caps.ts";
import { capsNotices, capsWaits, planCaps } from "../../../../../src/agent/sections/exec/caps.ts";
import { controlGroups } from "../../../../../src/host/process/cgroups.ts";
import type { EngineInfo } from "../../../../../src/host/engine/engine.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";
import { fakeTools } from "../../../../support/fake-tools.ts";
import { machineRoot } from "../../../../support/machine/machine-root.ts";

const INFO: EngineInfo = {
  cpus: 2,
  memoryBytes: 4e9,
  architecture: "x86_64",
  cgroupDriver: "cgroupfs",
  cgroupVersion: 2,
  rootDirectory: "/var/lib/docker",
  storageDriver: "overlay2",
  product: "docker",
};
const GROUP = "/sys/fs/cgroup/holdfast-containers";
const signal = new AbortController().signal;

function caps(files: Readonly<Record<string, string>>, isKnown = true) {
  const { root, reader } = machineRoot(files);
  const { exec } = fakeTools({});
  const clock = new FakeClock();
  let polls = 0;
  const groups = controlGroups("cgroupfs", { reader, exec, root });
  const opened = openCaps({
    reader,
    groups: () => (isKnown ? groups : undefined),
    info: () => INFO,
    clock,
    requestPass: () => (polls += 1),
  });
  return {
    opened,
    clock,
    polls: () => polls,
    root,
    write: (path: string, text: string): void => {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), text);
    },
  };
}

test("sets limits, reverts a manual change, and removes them", async () => {
  const { opened, write } = caps({
    "/sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
    [`${GROUP}/cpu.max`]: "max 100000\n",
    [`${GROUP}/memory.max`]: "max\n",
    [`${GROUP}/memory.high`]: "max\n",
  });
  const steps = (limits: object) => planCaps(limits, opened.observe(INFO)).length;
  const wanted = { cpuMax: 150, memMaxBytes: 1 << 20 };
  expect(opened.observe(undefined)).toBeUndefined();
  expect([steps({}), steps(wanted)]).toEqual([0, 1]);
  await opened.apply(wanted, signal);
  expect(steps(wanted)).toBe(0);
  write(`${GROUP}/cpu.max`, "max 100000\n");
  expect(steps(wanted)).toBe(1);
  await opened.apply(wanted, signal);
  expect([steps(wanted), steps({})]).toEqual([0, 1]);
  await opened.apply({}, signal);
  expect(steps({})).toBe(0);
});

test.each([true, false])("reports once that a machine cannot limit (groups known: %s)", async (isKnown) => {
  const { opened } = caps({}, isKnown);
  const wanted = { cpuMax: 150 };
  expect(planCaps(wanted, opened.observe(INFO))).toHaveLength(1);
  await opened.apply(wanted, signal);
  expect(planCaps(wanted, opened.observe(INFO))).toEqual([]);
  expect(capsNotices(wanted, opened.observe(INFO))).toHaveLength(1);
  expect(planCaps({}, opened.observe(INFO))).toEqual([]);
});

test("reports refused limits with a reason, and retries after a minute", async () => {
  const { opened, write, clock, polls, root } = caps({
    "/sys/fs/cgroup/cgroup.controllers": "cpu memory\n",
    [`${GROUP}/cpu.max/taken`]: "a directory is there\n",
  });
  const wanted = { cpuMax: 150 };
  await opened.apply(wanted, signal);
  const refused = opened.observe(INFO);
  expect([planCaps(wanted, refused), capsNotices(wanted, refused)]).toEqual([[], []]);
  expect(capsWaits(wanted, refused)).toMatchObject([{ code: "limits-refused", path: "exec.limits" }]);
  expect([capsWaits({}, refused), polls()]).toEqual([[], 0]);
  rmSync(join(root, GROUP, "cpu.max"), { recursive: true });
  write(`${GROUP}/cpu.max`, "max 100000\n");
  await clock.advance(60_000);
  expect(polls()).toBe(1);
  expect(planCaps(wanted, opened.observe(INFO))).toHaveLength(1);
  await opened.apply(wanted, signal);
  expect([planCaps(wanted, opened.observe(INFO)), capsWaits(wanted, opened.observe(INFO))]).toEqual([[], []]);
  // Also when nothing more of the engine is needed.
  expect(planCaps({}, opened.observe(undefined))).toHaveLength(1);
});
