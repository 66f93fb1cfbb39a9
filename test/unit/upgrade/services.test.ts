import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import type { Exec } from "../../../src/host/exec.ts";
import { systemdServices } from "../../../src/upgrade/services.ts";

/** systemctl(1) that has every unit pass over or carry out what it is asked, and notes the longest wait. */
function systemctl(condition: string): { readonly exec: Pick<Exec, "run">; readonly waits: number[] } {
  const waits: number[] = [];
  const run: Exec["run"] = (_file, args, { deadlineMs }) => {
    waits.push(deadlineMs);
    const stdout = args[0] === "show" ? `ConditionResult=${condition}\n` : "";
    return Promise.resolve({ exitCode: 0, stdout, stderr: "", signal: undefined, truncated: false });
  };
  return { exec: { run }, waits };
}

test.each([
  ["yes", true],
  ["no", false],
])("an update whose unit says %s to its condition took place: %j", async (condition, isUpdated) => {
  const { exec } = systemctl(condition);
  expect(await systemdServices(exec).updateSystem(new AbortController().signal)).toBe(isUpdated);
});

test("packages may be replaced for as long as their unit allows", async () => {
  const unit = readFileSync("systemd/holdfast-os-update.service", "utf8");
  const [, hours = ""] = /^TimeoutStartSec=(\d+)h$/m.exec(unit) ?? [];
  const { exec, waits } = systemctl("yes");
  await systemdServices(exec).updateSystem(new AbortController().signal);
  expect(Math.max(...waits)).toBeGreaterThan(Number(hours) * 3_600_000);
});
