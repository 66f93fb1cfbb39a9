import { existsSync, mkdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { Exec, ExecResult } from "../../../../src/host/process/exec.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import { upgradeUnit } from "../../../../src/host/process/upgrade-unit.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const request = { from: "/srv/manifest.jws", by: "operator", skipUnattended: false, isForced: true } as const;

function unit(answer: Partial<ExecResult> = {}) {
  const calls: string[] = [];
  const runDir = join(tempDir(), "run");
  mkdirSync(runDir);
  const requestPath = join(runDir, "upgrade-request.json");
  const exec: Exec = {
    spawn: () => expect.unreachable("only run to its end"),
    run: (file, args) => {
      calls.push(`${file} ${args.join(" ")}`, existsSync(requestPath) ? "with a request" : "without");
      return Promise.resolve({ exitCode: 0, signal: undefined, stdout: "", stderr: "", truncated: false, ...answer });
    },
  };
  return { calls, requestPath, unit: upgradeUnit({ exec, files: hostFiles(), isManaged: true, requestPath }) };
}

test("leaves the request for its own user, then starts the unit without waiting", async () => {
  const { calls, requestPath, unit: it } = unit();
  await it.start(request);
  expect(calls).toEqual(["systemctl start --no-block -- holdfast-upgrade.service", "with a request"]);
  expect(JSON.parse(readFileSync(requestPath, "utf8"))).toEqual(request);
  expect(statSync(requestPath).mode & 0o777).toBe(0o600);
});

test("reports that the unit could not be started, and leaves no request", async () => {
  const { requestPath, unit: it } = unit({ exitCode: 5, stderr: "Unit holdfast-upgrade.service not found.\n" });
  await expect(it.start(request)).rejects.toMatchObject({
    code: "exec-failed",
    message: "systemctl start failed for holdfast-upgrade.service: Unit holdfast-upgrade.service not found.",
  });
  expect(existsSync(requestPath)).toBe(false);
});

test.each([
  ["Job=\nActiveState=inactive\n", false],
  ["Job=0\nActiveState=failed\n", false],
  ["ActiveState=inactive\nJob=4711\n", true],
  ["ActiveState=activating\nJob=4711\n", true],
  ["ActiveState=active\nJob=\n", true],
  ["ActiveState=deactivating\nJob=\n", true],
])("%j: running is %s", async (stdout, isAtWork) => {
  expect(await unit({ stdout }).unit.isAtWork()).toBe(isAtWork);
});
