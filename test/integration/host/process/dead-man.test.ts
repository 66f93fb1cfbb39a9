import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { hostDeadMan, watchCommand } from "../../../../src/host/process/dead-man.ts";
import { fakeTools } from "../../../support/fake-tools.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const ID = "0197f1a2-0000-4000-8000-000000000001";
const request = { stateDir: "/srv/a state", runDir: "/run/hf", isManaged: true, id: ID, waitMs: 30_500 };
const { signal } = new AbortController();

test("under systemd it is a timer of its own, which ends on request", async () => {
  const tools = fakeTools({ "systemd-run": "", systemctl: "" });
  const deadMan = await hostDeadMan(tools.exec)(request, signal);
  const [call = ""] = tools.calls("systemd-run");
  const about = `--quiet --collect --unit=holdfast-guard-${ID} --on-active=31s --timer-property=AccuracySec=1s --property=ProtectControlGroups=yes -- /bin/sh -c `;
  expect(call.startsWith(about)).toBe(true);
  expect(call.endsWith(`guard watch --state /srv/a state --run /run/hf --managed --id ${ID}`)).toBe(true);
  // Each is doubled, since systemd expands single ones.
  expect(call).toContain("$$@");
  expect(call.replaceAll("$$", "")).not.toContain("$");
  await deadMan.end();
  expect(tools.calls("systemctl")).toEqual([`stop --no-block -- holdfast-guard-${ID}.timer`]);
});

test("reports a timer that systemd refuses, so that no change starts", async () => {
  const tools = fakeTools({ "systemd-run": "echo 'Failed to start transient timer unit' >&2; exit 1" });
  const starting = hostDeadMan(tools.exec)(request, signal);
  await expect(starting).rejects.toMatchObject({ code: "guard-failed" });
  await expect(starting).rejects.toThrow("Failed to start transient timer unit");
});

test("stopping a timer that has ended is silent", async () => {
  const tools = fakeTools({ "systemd-run": "", systemctl: "exit 5" });
  const deadMan = await hostDeadMan(tools.exec)({ ...request, waitMs: -1 }, signal);
  expect(tools.calls("systemd-run")[0]).toContain("--on-active=1s");
  await expect(deadMan.end()).resolves.toBeUndefined();
});

test("outside systemd a shell sleeps first; no argument passes through it as text", () => {
  const [file, flag, script, ...rest] = watchCommand({ ...request, isManaged: false, stateDir: "/a;b" });
  expect([file, flag, script]).toEqual(["/bin/sh", "-c", 'sleep "$1"; shift; exec "$@"']);
  expect(rest.slice(0, 2)).toEqual(["holdfast-guard", "31"]);
  expect(rest.slice(-6)).toEqual(["--state", "/a;b", "--run", "/run/hf", "--id", ID]);
});

const own = { argv: process.argv, execArgv: process.execArgv };
const ends: readonly (readonly [string, string, readonly string[]])[] = [
  ["does it", "exit 0", ["own"]],
  ["cannot be done with", "exit 1", ["own", "launch --proven"]],
  ["crashes", "kill -9 $$", ["own", "launch --proven"]],
  ["is gone", "", ["launch --proven"]],
];
test.each(ends)("when the program that made the change %s, the right one rolls it back", (_what, script, ran) => {
  const dir = tempDir();
  const [node, launch, log] = ["node *", "launch $x", "log"].map((name) => join(dir, name)) as [string, string, string];
  const says = (who: string): string => `#!/bin/sh\nfor word; do :; done; echo "${who} $word" >>'${log}'\n`;
  if (script !== "") writeFileSync(node, `${says("own")}${script}\n`, { mode: 0o755 });
  writeFileSync(launch, says("launch $1"), { mode: 0o755 });
  onTestFinished(() => void Object.assign(process, own));
  Object.assign(process, { argv: [node, join(dir, "holdfast.mjs")], execArgv: ["--disable-sigusr1"] });
  const [file, ...args] = watchCommand({ ...request, waitMs: 0, launch });
  const { status } = spawnSync(file, args, { encoding: "utf8" });
  expect(status).toBe(0);
  expect(readFileSync(log, "utf8").trim().split("\n")).toEqual(ran.map((who) => `${who} ${ID}`));
});

test("does not start if it cannot write its output", async () => {
  const { exec } = fakeTools({});
  const starting = hostDeadMan(exec)({ ...request, isManaged: false, stateDir: "/nowhere/at/all" }, signal);
  await expect(starting).rejects.toMatchObject({ code: "guard-failed" });
});
