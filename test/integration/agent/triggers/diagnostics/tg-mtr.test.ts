import { chmod, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { mtrArguments, TgMtr, tgMtr } from "../../../../../src/agent/triggers/diagnostics/tg-mtr.ts";
import { systemClock } from "../../../../../src/host/clock.ts";
import { hostExec, SEARCH_PATH } from "../../../../../src/host/process/exec.ts";
import { hostFiles } from "../../../../../src/host/files/files.ts";
import { tempDir } from "../../../../support/temp-dir.ts";
import { rig } from "../../../../unit/agent/triggers/rig.ts";
import { untilHolds } from "../../../../support/until-holds.ts";

const clock = systemClock();

/** The event over a program `mtr` with these shell lines. */
async function stage(script: string) {
  const directory = tempDir();
  await writeFile(join(directory, "mtr"), `#!/bin/sh\n${script}\n`);
  await chmod(join(directory, "mtr"), 0o755);
  return rig([tgMtr(hostExec(clock, `${directory}:${SEARCH_PATH}`), hostFiles())]);
}

test.each<[string | undefined, boolean, string]>([
  [undefined, true, "-j -n -c 10 -- h"],
  [undefined, false, "-w -c 10 -- h"],
  ["-b", true, "-b -j -c 10 -- h"],
  ["-n -c 3", true, "-n -c 3 -j -- h"],
  ["--report", true, "-r -c 10 -- h"],
  ["-r", false, "-r -c 10 -- h"],
  ["  --json   --report-cycles 100 ", false, "-j -c 100 -- h"],
  [
    "-T -P 8443 -i 0.2 -s 28 -m 64 -a 192.0.2.7 -z -4",
    false,
    "-T -P 8443 -i 0.2 -s 28 -m 64 -a 192.0.2.7 -z -4 -w -c 10 -- h",
  ],
])("the options %j, wait %s: %s", (options, wait, line) => {
  const request = TgMtr.parse({ hostname: "h", ...(options === undefined ? {} : { options }) });
  expect(mtrArguments(request, wait).join(" ")).toBe(line);
});

test.each([
  "-F /etc/passwd",
  "--filename /etc/passwd",
  "-x",
  "-C",
  "-l",
  "-t",
  "-g",
  "-o LSD",
  "-c 0",
  "-c 101",
  "-c 1.5",
  "-i 0.1",
  "-i 61",
  "-i 1e1",
  "-s 27",
  "-s 9001",
  "-m 65",
  "-P 0",
  "-P",
  "-a host",
  "-a ::1%lo",
  "-I ../lo",
  "-I -n",
  "-n -n",
  "-n --no-dns",
  "-n;id",
  "$(id)",
  "-n\t-T",
  "--",
  "192.0.2.1",
  "--report-cycles=5",
])("refuses the options %j", (options) => {
  expect(TgMtr.safeParse({ hostname: "h", options }).error?.issues[0]?.path).toEqual(["options"]);
});

test.each([
  [{}, "hostname"],
  [{ hostname: "-f" }, "hostname"],
  [{ hostname: "a b" }, "hostname"],
  [{ hostname: "h", cols: 19 }, "cols"],
  [{ hostname: "h", cols: 501 }, "cols"],
  [{ hostname: "h", options: ["-n"] }, "options"],
])("refuses %j for its %s", (body, field) => {
  expect(TgMtr.safeParse(body).error?.issues[0]?.path).toEqual([field]);
});

test("passes on the tool's output, with its exit status", async () => {
  const { run } = await stage('echo "$@"; exit 3');
  expect(await run("tg-mtr", { body: { hostname: "192.0.2.1", options: "-c 2" } })).toMatchObject({
    body: { output: { message: "-c 2 -j -n -- 192.0.2.1\n", exitCode: "3" } },
  });
});

test("reports that there is no interactive screen", async () => {
  const { run, channel } = await stage("echo report");
  await run("tg-mtr", { body: { hostname: "192.0.2.1", options: "-i 0.5" }, wait: false });
  await untilHolds(() => expect(channel.results).toMatchObject([{ reply: { body: { exitCode: 0 } } }]));
  expect(channel.text).toBe("no terminal for mtr's screen: its report follows after 10 rounds of 0.5 s\nreport\n");
  const requested = await stage("echo report");
  await requested.run("tg-mtr", { body: { hostname: "192.0.2.1", options: "-r" }, wait: false });
  await untilHolds(() => expect(requested.channel.results).toHaveLength(1));
  expect(requested.channel.text).toBe("report\n");
});

test("an unknown link, and a machine without mtr", async () => {
  const { run } = await stage("echo never");
  expect(await run("tg-mtr", { body: { hostname: "192.0.2.1", options: "-I nope0" } })).toMatchObject({
    error: { code: "not-found", details: { field: "options" } },
  });
  expect(await run("tg-mtr", { body: { hostname: "192.0.2.1", options: "-I lo" } })).toMatchObject({
    body: { output: { exitCode: "0" } },
  });
  const bare = rig([tgMtr(hostExec(clock, "/nowhere"), hostFiles())]);
  expect(await bare.run("tg-mtr", { body: { hostname: "192.0.2.1" } })).toMatchObject({
    error: { code: "tool-missing", details: { tool: "mtr" } },
  });
});
