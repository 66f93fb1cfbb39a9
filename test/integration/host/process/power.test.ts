import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { systemClock } from "../../../../src/host/clock.ts";
import { hostExec, SEARCH_PATH } from "../../../../src/host/process/exec.ts";
import { hostPower } from "../../../../src/host/process/power.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "power-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function power(systemctl: string, isManaged = true) {
  writeFileSync(join(folder, "systemctl"), `#!/bin/sh\n${systemctl}\n`, { mode: 0o755 });
  return hostPower(hostExec(systemClock(), `${folder}:${SEARCH_PATH}`), { isManaged, unit: "holdfast-agent.service" });
}

test("calls systemd, with the unit after the options", async () => {
  const host = power(`echo "$@" >> ${folder}/calls`);
  await host.restartService();
  await host.reboot();
  expect(readFileSync(join(folder, "calls"), "utf8")).toBe("restart --no-block -- holdfast-agent.service\nreboot\n");
});

test("reports the error of systemd", async () => {
  const host = power("echo 'Operation inhibited by dpkg' >&2; exit 1");
  await expect(host.reboot()).rejects.toMatchObject({
    code: "exec-failed",
    message: "systemctl reboot: Operation inhibited by dpkg",
  });
});

test("refuses outside a managed install without any call", async () => {
  const host = power(`touch ${folder}/calls`, false);
  await expect(host.restartService()).rejects.toMatchObject({ code: "not-supported" });
  await expect(host.reboot()).rejects.toMatchObject({ code: "not-supported" });
  expect(() => readFileSync(join(folder, "calls"))).toThrow("ENOENT");
});
