import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { Exec } from "../../../src/host/process/exec.ts";
import { systemdServices } from "../../../src/upgrade/services.ts";
import { tempDir } from "../../support/temp-dir.ts";

/** systemctl(1) whose units skip or run what it starts, and which records the longest wait. */
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
])("an update whose unit reports %s to its condition took place: %j", async (condition, isUpdated) => {
  const { exec } = systemctl(condition);
  expect(await systemdServices(exec).updateSystem(new AbortController().signal)).toBe(isUpdated);
});

const UNDONE = "iF \thalf\nii \tgood\niHR\tbroken:amd64\niU \tunpacked\n";

test.each([
  [
    { exitCode: 0, stdout: UNDONE, stderr: "" },
    "package-database",
    /^packages are not completely installed: half \(half configured\), broken:amd64 \(must be installed again\), unpacked \(unpacked\); run dpkg --configure -a/u,
  ],
  [
    { exitCode: 2, stdout: "", stderr: "dpkg-query: error:\n parsing file '/var/lib/dpkg/status'" },
    "package-database",
    /^the package database cannot be read: dpkg-query: error: parsing file '\/var\/lib\/dpkg\/status'; restore/u,
  ],
  [{ exitCode: 0, stdout: "ii \tgood\nrc \tremoved\n", stderr: "" }, "exec-failed", /^systemctl start .*: no$/u],
])("a failed update reports the problem of the packages: %j", async (answer, code, message) => {
  const run: Exec["run"] = (file) =>
    Promise.resolve({
      ...(file === "dpkg-query" ? answer : { exitCode: 1, stdout: "", stderr: "no" }),
      signal: undefined,
      truncated: false,
    });
  const updated = systemdServices({ run }).updateSystem(new AbortController().signal);
  await expect(updated).rejects.toMatchObject({ code, message: expect.stringMatching(message) as unknown });
});

test("updates packages after the completion of an interrupted installation, or not at all", () => {
  const unit = readFileSync("systemd/holdfast-os-update.service", "utf8");
  const programs = [...unit.matchAll(/^ExecStart(?:Pre)?=(.*)$/gm)].map(([, line = ""]) => line);
  expect(programs[0]).toBe("/usr/bin/dpkg --force-confdef --force-confold --configure --pending");
  const [, script = ""] = /^\/bin\/sh -c '([^'$%\\]*)'$/u.exec(programs[1] ?? "") ?? [];
  expect(script).not.toBe("");
  const ended = (lines: string): number | null => {
    const dir = tempDir();
    writeFileSync(join(dir, "dpkg-query"), `#!/bin/sh\nprintf '${lines}'\n`, { mode: 0o755 });
    return spawnSync("/bin/sh", ["-c", script], { env: { PATH: `${dir}:/usr/bin:/bin` } }).status;
  };
  const head =
    "Desired=Unknown/Install\n| Status=Not/Inst\n|/ Err?=(none)/Reinst-required\n||/ Name Version\n+++-====\n";
  expect(ended(`${head}ii  good 1\nrc  removed 1\nit  triggered 1\n`)).toBe(0);
  for (const status of ["iF ", "iU ", "iH ", "iHR"]) expect(ended(`${head}ii  good 1\n${status} broken 1\n`)).toBe(1);
});

test("limits the replacement of packages by the time of their unit", async () => {
  const unit = readFileSync("systemd/holdfast-os-update.service", "utf8");
  const [, hours = ""] = /^TimeoutStartSec=(\d+)h$/m.exec(unit) ?? [];
  const { exec, waits } = systemctl("yes");
  await systemdServices(exec).updateSystem(new AbortController().signal);
  expect(Math.max(...waits)).toBeGreaterThan(Number(hours) * 3_600_000);
});
