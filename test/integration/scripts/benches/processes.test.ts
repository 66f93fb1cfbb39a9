import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { activityOf, busyBetween, fingerprint, memoryOf } from "../../../../scripts/benches/processes.ts";
import { tempDir } from "../../../support/temp-dir.ts";
import { waitFor } from "../../../support/wait-for.ts";

test("the load of the cores between two readings, with iowait as idle", () => {
  const at = (user: number, idle: number, wait: number): string =>
    `cpu  ${user} 0 0 ${idle} ${wait} 0 0 0 7 0\ncpu0 1\n`;
  expect(busyBetween(at(100, 500, 100), at(130, 560, 110))).toBeCloseTo(0.3);
  expect(busyBetween(at(0, 0, 0), at(0, 10, 0))).toBe(0);
});

test("a process's memory, wake-ups and children", async () => {
  const child = spawn("sh", ["-c", "sleep 60 & while :; do sleep 0.01; done"], { detached: true });
  const pid = child.pid ?? 0;
  onTestFinished(() => void process.kill(-pid, "SIGKILL"));
  await waitFor("it has children", () => activityOf(pid).children > 0);
  const before = activityOf(pid);
  await waitFor("it is woken and its children end", () => {
    const now = activityOf(pid);
    return now.wakeUps > before.wakeUps && now.endedChildrenFaults > before.endedChildrenFaults;
  });
  const { residentBytes, privateDirtyBytes } = memoryOf(pid);
  expect(residentBytes).toBeGreaterThan(privateDirtyBytes);
  expect(privateDirtyBytes).toBeGreaterThan(0);
});

test("a fingerprint detects any change below a directory", () => {
  const dir = tempDir();
  expect(fingerprint(join(dir, "none"))).toBe("");
  mkdirSync(join(dir, "inner"));
  writeFileSync(join(dir, "inner", "file"), "one");
  const before = fingerprint(dir);
  expect(fingerprint(dir)).toBe(before);
  writeFileSync(join(dir, "inner", "file"), "longer");
  expect(fingerprint(dir)).not.toBe(before);
});
