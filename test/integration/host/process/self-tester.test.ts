import { chmodSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { systemClock } from "../../../../src/host/clock.ts";
import { hostExec } from "../../../../src/host/process/exec.ts";
import { hostSelfTester, judge, type SelfTestResult } from "../../../../src/host/process/self-tester.ts";
import { tempDir } from "../../../support/temp-dir.ts";

test.each<[string, Parameters<typeof judge>[0], SelfTestResult]>([
  ["all passed", { exitCode: 0, stdout: "PASS sqlite\nSKIP state: full\n", stderr: "" }, { is: "passed" }],
  [
    "one failed",
    { exitCode: 1, stdout: "PASS sqlite\nFAIL ffi: no library\n", stderr: "" },
    { is: "failed", check: "ffi", message: "no library" },
  ],
  [
    "one failed, whatever the exit status",
    { exitCode: 0, stdout: "FAIL ffi: no library\nPASS sqlite\n", stderr: "" },
    { is: "failed", check: "ffi", message: "no library" },
  ],
  [
    "nothing was tested",
    { exitCode: 0, stdout: "", stderr: "" },
    { is: "failed", check: "start", message: "exit status 0" },
  ],
  [
    "it does not start",
    { exitCode: 126, stdout: "", stderr: "x\nsetpriv: Exec format error\n" },
    { is: "failed", check: "start", message: "exit status 126: setpriv: Exec format error" },
  ],
])("%s", (_name, result, expected) => {
  expect(judge(result)).toEqual(expected);
});

const matching = (pattern: RegExp): unknown => expect.stringMatching(pattern);

function tester(script: string, deadlineMs = 30_000): Promise<SelfTestResult> {
  const path = join(tempDir(), "version");
  mkdirSync(path);
  writeFileSync(join(path, "node"), script);
  chmodSync(join(path, "node"), 0o755);
  const exec = hostExec(systemClock());
  const options = { exec, stateDir: "/state", configFile: "/config.json", deadlineMs };
  return hostSelfTester(options).run({ path, work: "/work" }, AbortSignal.timeout(60_000));
}

test("a version is tested by its own runtime", async () => {
  const result = await tester('#!/bin/sh\necho "FAIL args: $*"\n');
  expect(result).toMatchObject({
    check: "args",
    message: matching(/holdfast\.mjs self-test --state \/state --config \/config\.json --work \/work$/),
  });
});

test.skipIf(process.getuid?.() !== 0)("it has no privileges and gains none", async () => {
  const status = '$(grep -E "CapEff|CapBnd|NoNewPrivs" /proc/self/status | tr -s "\\t\\n" "  ")';
  const result = await tester(`#!/bin/sh\necho "FAIL status: ${status}"\n`);
  expect(result).toMatchObject({ message: "CapEff: 0000000000000000 CapBnd: 0000000000000000 NoNewPrivs: 1 " });
});

test("one that hangs has failed", async () => {
  expect(await tester("#!/bin/sh\nexec sleep 600\n", 300)).toEqual({
    is: "failed",
    check: "start",
    message: "it timed out after 0.3 s",
  });
});

test("one that cannot be run has failed, and one that was killed has not", async () => {
  expect(await tester("\x7fELF nonsense")).toMatchObject({ is: "failed", check: "start" });
  await expect(tester("#!/bin/sh\nkill -9 $$\n")).rejects.toMatchObject({ code: "self-test-killed" });
});
