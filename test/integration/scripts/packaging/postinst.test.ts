import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { filledScript } from "../../../../scripts/packaging/debian.ts";
import { installedOf } from "../../../../scripts/packaging/layout.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const SYSTEMD = new Map([
  ["holdfast-agent.service", Buffer.from("[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n")],
]);
const TEMPLATE = readFileSync(join(import.meta.dirname, "../../../../scripts/packaging/maintainer/postinst"), "utf8");

/**
 * The script of a package that replaces another, with all its files below a directory and a manager that only records its calls: an hour is
 * too long to wait. Commands for systemd-run are in `later`, and each of their pauses runs `atPause` instead.
 */
function aPackage() {
  const root = tempDir();
  for (const name of ["bin", "lib", "state/desired", "versions", "systemd"])
    mkdirSync(join(root, name), { recursive: true });
  const stub = (name: string, lines: string): void =>
    writeFileSync(join(root, "bin", name), `#!/bin/sh\ncd '${root}'\n${lines}\n`, { mode: 0o755 });
  stub("systemctl", 'echo "$*" >>told\ncase $* in *is-active*) [ -e upgrade-runs ] ;; esac');
  stub("systemd-run", '[ ! -e no-later ] || exit 1\nfor last; do :; done\nprintf "%s\\n" "$last" >later');
  stub("systemd-sysusers", ":");
  stub("systemd-tmpfiles", ":");
  stub("sleep", 'echo "$1" >>slept\n[ ! -e at-pause ] || . ./at-pause');
  const text = filledScript(TEMPLATE, installedOf(SYSTEMD))
    .replaceAll("/var/lib/holdfast-versions", join(root, "versions"))
    .replaceAll("/var/lib/holdfast", join(root, "state"))
    .replaceAll("/usr/lib/holdfast", join(root, "lib"))
    .replaceAll("/run/systemd/system", join(root, "systemd"))
    .replaceAll("/usr/sbin/policy-rc.d", join(root, "no-policy"));
  const run = (args: readonly string[]) => {
    const env = { PATH: `${join(root, "bin")}:${process.env["PATH"] ?? ""}` };
    const { status, stderr } = spawnSync("dash", args, { encoding: "utf8", env });
    return { status, stderr };
  };
  const lines = (name: string): readonly string[] =>
    existsSync(join(root, name)) ? readFileSync(join(root, name), "utf8").trimEnd().split("\n") : [];
  return {
    set: (name: string, content = "") => writeFileSync(join(root, name), content),
    install: () => run(["-c", text, "postinst", "configure", "0.1.20260101-0000"]),
    later: () => run([join(root, "later")]),
    isPostponed: () => existsSync(join(root, "later")),
    restarts: () => lines("told").filter((line) => /try-restart holdfast-agent/.test(line)).length,
    sleptSeconds: () => lines("slept").reduce((sum, line) => sum + Number(line), 0),
  };
}

test("a newer package restarts the agent at once if nothing is pending", () => {
  const machine = aPackage();
  // An abandoned trial delays nothing.
  machine.set("versions/0.1.20260202-0000.trial");
  expect(machine.install()).toEqual({ status: 0, stderr: "" });
  expect([machine.restarts(), machine.isPostponed()]).toEqual([1, false]);
});

test.each([
  ["an upgrade is judged", ["versions/0.1.20260202-0000.trial", "upgrade-runs"], "an upgrade is being judged"],
  ["a change is not confirmed", ["state/desired/checkpoint.json"], "a change of the network is not confirmed yet"],
] as const)("while %s it waits, reports it, and restarts the agent afterwards", (_, files, why) => {
  const machine = aPackage();
  for (const file of files) machine.set(file);
  const { status, stderr } = machine.install();
  expect(status).toBe(0);
  expect(stderr).toContain(`holdfast: ${why}, so the version before runs until that is over`);
  expect([machine.restarts(), machine.isPostponed()]).toEqual([0, true]);
  machine.set("at-pause", `[ "$(wc -l <slept)" -lt 7 ] || rm -f '${files[0]}'`);
  expect(machine.later().status).toBe(0);
  expect([machine.restarts(), machine.sleptSeconds()]).toEqual([1, 14]);
});

test("waits 70 minutes for what never ends, longer than any change may stay unconfirmed", () => {
  const machine = aPackage();
  machine.set("state/desired/checkpoint.json");
  machine.install();
  expect(machine.later().status).toBe(0);
  expect(machine.sleptSeconds()).toBe(70 * 60);
  expect(machine.restarts()).toBe(1);
});

test("reports what to do later if nothing can wait", () => {
  const machine = aPackage();
  machine.set("state/desired/checkpoint.json");
  machine.set("no-later");
  const { status, stderr } = machine.install();
  expect(status).toBe(0);
  expect(stderr).toContain("restart the agent once that is over: systemctl restart holdfast-agent");
  expect(machine.restarts()).toBe(0);
});
