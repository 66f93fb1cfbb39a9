import { existsSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { captureExec, privilegedExec } from "../../../../src/host/process/privileged-exec.ts";
import { fakeTools } from "../../../support/fake-tools.ts";
import { tempDir } from "../../../support/temp-dir.ts";
import { waitFor } from "../../../support/wait-for.ts";

const signal = new AbortController().signal;
const options = { signal, deadlineMs: 12_500, maxOutputBytes: 4096 };
/** Executes what follows `--`, as systemd-run(1) with --pipe and --wait does. */
const RUN = 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"';

test("a tool that needs more privileges than the unit has is a unit of its own, with its input, output and status", async () => {
  const tools = fakeTools({ "systemd-run": RUN });
  const run = await privilegedExec(tools.exec, true).run("sh", ["-c", "cat; exit 7"], { ...options, input: "a key" });
  expect(run).toMatchObject({ exitCode: 7, stdout: "a key" });
  expect(tools.calls("systemd-run")).toEqual([
    expect.stringMatching(
      /^--quiet --collect --wait --pipe --service-type=exec --unit=holdfast-tool-[0-9a-f]{12} .*--property=RuntimeMaxSec=13 --setenv=LC_ALL=C -- sh -c cat; exit 7$/,
    ),
  ]);
});

test("outside systemd it is started as any other", async () => {
  const tools = fakeTools({ "systemd-run": "exit 1" });
  expect(await privilegedExec(tools.exec, false).run("sh", ["-c", "echo here"], options)).toMatchObject({
    stdout: "here\n",
  });
  expect(captureExec(tools.exec, undefined)).toBe(tools.exec);
  expect(tools.calls("systemd-run")).toEqual([]);
});

test("a sender of raw packets runs with the same privileges, and ends by itself", async () => {
  const tools = fakeTools({ "systemd-run": RUN });
  const exec = captureExec(tools.exec, "holdfast-agent.service");
  expect(await exec.run("sh", ["-c", "echo answered; exit 1"], options)).toMatchObject({
    exitCode: 1,
    stdout: "answered\n",
  });
  const [call = ""] = tools.calls("systemd-run");
  for (const property of ["CapabilityBoundingSet=CAP_NET_RAW", "BindsTo=holdfast-agent.service", "RuntimeMaxSec=13"])
    expect(call).toContain(`--property=${property} `);
});

test("names a missing tool, and creates no unit for it", async () => {
  const tools = fakeTools({ "systemd-run": RUN });
  const exec = captureExec(tools.exec, "holdfast-agent.service");
  await expect(exec.run("no-such-tool", [], options)).rejects.toMatchObject({ code: "tool-missing" });
  expect(() => exec.spawn("no-such-tool", [], { signal })).toThrow("no-such-tool is not installed");
  expect(tools.calls("systemd-run")).toEqual([]);
});

test("a capture has a user of its own and ends with the agent's unit", async () => {
  const tools = fakeTools({ "systemd-run": RUN, systemctl: "" });
  const captured = captureExec(tools.exec, "holdfast-agent.service").spawn("echo", ["seen"], { signal });
  let text = "";
  for await (const { data } of captured.output) text += data;
  expect([text, await captured.exitCode]).toEqual(["seen\n", 0]);
  const [call = ""] = tools.calls("systemd-run");
  for (const property of ["DynamicUser=yes", "CapabilityBoundingSet=CAP_NET_RAW", "BindsTo=holdfast-agent.service"]) {
    expect(call).toContain(`--property=${property} `);
  }
  captured.kill();
  expect(tools.calls("systemctl")).toEqual([]);
});

/** Its waiter runs as long as the unit; when stopped, the tool has ended with status 0. */
const unitIn = (dir: string) => ({
  "systemd-run": `trap 'exit 0' USR1; echo $$ > ${dir}/pid; while :; do sleep 0.02; done`,
  systemctl: `kill -USR1 "$(cat ${dir}/pid)"`,
});

test.each(["kill", "abort"])("by %s its unit is stopped, once, and its exit status is known", async (how) => {
  const ending = new AbortController();
  const dir = tempDir();
  const tools = fakeTools(unitIn(dir));
  const exec = captureExec(tools.exec, "holdfast-agent.service");
  const captured = exec.spawn("sleep", [], { signal: ending.signal });
  await waitFor("it runs", () => existsSync(join(dir, "pid")));
  if (how === "kill") captured.kill();
  else ending.abort(new Error("cancelled"));
  captured.kill();
  expect(await captured.exitCode).toBe(0);
  expect(tools.calls("systemctl")).toEqual([expect.stringMatching(/^stop -- holdfast-tool-[0-9a-f]{12}\.service$/)]);
});

test("without a unit to stop, ends what waits for it", async () => {
  const tools = fakeTools({ "systemd-run": "exec sleep 60", systemctl: "exit 5" });
  const captured = captureExec(tools.exec, "holdfast-agent.service").spawn("sleep", [], { signal });
  await waitFor("it runs", () => tools.calls("systemd-run").length === 1);
  captured.kill();
  expect(await captured.exitCode).not.toBe(0);
});
