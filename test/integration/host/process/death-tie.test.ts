import { spawnSync } from "node:child_process";
import { chmodSync, copyFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { deathTie } from "../../../../src/host/process/death-tie.ts";
import { SEARCH_PATH } from "../../../../src/host/process/exec.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const ping = { file: "ping", args: ["-c", "1", "--", "127.0.0.1"] };

test("starts a tool through setpriv under its own name", () => {
  const tied = deathTie(SEARCH_PATH)({ file: "sh", args: ["-c", "echo $0 $@", "--", "-x"] });
  expect(tied).toEqual({
    file: "/usr/bin/setpriv",
    args: ["--pdeathsig", "KILL", "--", "sh", "-c", "echo $0 $@", "--", "-x"],
  });
  expect(spawnSync(tied.file, tied.args, { encoding: "utf8" }).stdout).toBe("-- -x\n");
});

test("a missing tool keeps its command line, so that it fails under its own name", () => {
  const dir = tempDir();
  writeFileSync(join(dir, "ping"), "");
  expect(deathTie(dir)(ping)).toEqual(ping);
  chmodSync(join(dir, "ping"), 0o755);
  expect(deathTie(`/nowhere:${dir}`)(ping).args).toContain("--pdeathsig");
  const absolute = { file: "/etc/passwd", args: [] };
  expect(deathTie(SEARCH_PATH)(absolute)).toEqual(absolute);
});

test("without setpriv, or without that option in it, tools start directly", () => {
  const dir = tempDir();
  copyFileSync("/usr/bin/true", join(dir, "busybox"));
  symlinkSync("busybox", join(dir, "setpriv"));
  for (const setpriv of ["/nowhere/setpriv", join(dir, "setpriv"), "/etc/passwd"]) {
    const command = { file: "sh", args: ["-c", "true"] };
    expect(deathTie(SEARCH_PATH, setpriv)(command)).toEqual(command);
  }
});
