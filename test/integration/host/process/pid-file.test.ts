import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { readPidFile, writePidFile } from "../../../../src/host/process/pid-file.ts";
import { someDirectories } from "../../../support/local-agent.ts";

describe("pid files", () => {
  it("name this process until removed", async () => {
    await using dirs = await someDirectories();
    mkdirSync(dirs.runDir);
    expect(await readPidFile(dirs.runDir, "agent")).toBeUndefined();
    const file = await writePidFile(dirs.runDir, "agent");
    expect(file.path).toBe(join(dirs.runDir, "agent.pid"));
    expect(readFileSync(file.path, "utf8")).toBe(`${process.pid}\n`);
    expect(await readPidFile(dirs.runDir, "agent")).toBe(process.pid);
    file.remove();
    file.remove();
    expect(existsSync(file.path)).toBe(false);
  });

  it("replace a stale one, and leave one written by a successor alone", async () => {
    await using dirs = await someDirectories();
    mkdirSync(dirs.runDir);
    const child = spawn(process.execPath, ["-e", ""]);
    await once(child, "close");
    writeFileSync(join(dirs.runDir, "agent.pid"), `${child.pid}\n`);
    expect(await readPidFile(dirs.runDir, "agent")).toBeUndefined();
    const file = await writePidFile(dirs.runDir, "agent");
    expect(await readPidFile(dirs.runDir, "agent")).toBe(process.pid);
    writeFileSync(file.path, "1\n");
    file.remove();
    expect(readFileSync(file.path, "utf8")).toBe("1\n");
  });

  it.each(["", "zero", "-1", "0", "12x", "99999999999", "1 2"])("read no id from %j", async (text) => {
    await using dirs = await someDirectories();
    mkdirSync(dirs.runDir);
    writeFileSync(join(dirs.runDir, "agent.pid"), text);
    expect(await readPidFile(dirs.runDir, "agent")).toBeUndefined();
  });
});
