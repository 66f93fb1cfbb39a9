import { execFileSync } from "node:child_process";
import { readFileSync, readlinkSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { arOf, contentSize, tarOf, type Entry } from "../../../../scripts/packaging/archives.ts";
import { cutElf } from "../../../../scripts/packaging/elf.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const entries: readonly Entry[] = [
  { path: "b/run", mode: 0o755, data: Buffer.from("run") },
  { path: "b/c/text", mode: 0o644, data: Buffer.alloc(1500, "x") },
  { path: "a", link: "b/run" },
];

describe("archives", () => {
  it("are unpacked by tar(1) to the same contents", () => {
    const folder = tempDir();
    writeFileSync(join(folder, "x.tar"), tarOf(entries, "./", 1000));
    execFileSync("tar", ["-xpf", join(folder, "x.tar"), "-C", folder]);
    expect(readFileSync(join(folder, "b/run"), "utf8")).toBe("run");
    expect(statSync(join(folder, "b/run")).mode & 0o777).toBe(0o755);
    expect(statSync(join(folder, "b/c/text")).mtimeMs).toBe(1_000_000);
    expect(readFileSync(join(folder, "b/c/text"), "utf8")).toBe("x".repeat(1500));
    expect(readlinkSync(join(folder, "a"))).toBe("b/run");
    const listed = execFileSync("tar", ["-tf", join(folder, "x.tar")], { encoding: "utf8" });
    expect(listed).toBe("./\n./a\n./b/\n./b/c/\n./b/c/text\n./b/run\n");
    expect(contentSize(entries)).toBe(1503);
  });

  it("do not depend on the order of the input, and refuse a repeated or too long path", () => {
    expect(tarOf([...entries].reverse(), "", 1)).toEqual(tarOf(entries, "", 1));
    const [first] = entries;
    if (first === undefined) throw new Error("no entry");
    expect(() => tarOf([first, first], "", 1)).toThrow("b/run is there twice");
    expect(() => tarOf([{ path: "x".repeat(101), link: "a" }], "", 1)).toThrow("too long");
  });

  it("are read by ar(1)", () => {
    const folder = tempDir();
    const file = join(folder, "x.ar");
    const members = [
      { name: "odd", data: Buffer.from("123") },
      { name: "even", data: Buffer.from("1234") },
    ];
    writeFileSync(file, arOf(members, 5));
    expect(execFileSync("ar", ["t", file], { encoding: "utf8" })).toBe("odd\neven\n");
    expect(execFileSync("ar", ["p", file, "even"], { encoding: "utf8" })).toBe("1234");
  });
});

describe("the runtime", () => {
  it("still runs without what no segment contains", () => {
    const file = join(tempDir(), "node");
    const whole = readFileSync(process.execPath);
    const cut = cutElf(whole);
    expect(cut.length).toBeLessThan(whole.length);
    writeFileSync(file, cut, { mode: 0o755 });
    expect(execFileSync(file, ["-p", "process.version"], { encoding: "utf8" }).trim()).toBe(process.version);
    expect(cutElf(cut).equals(cut)).toBe(true);
  });

  it("must be an executable, and complete", () => {
    expect(() => cutElf(Buffer.from("#!/bin/sh\n"))).toThrow("no 64-bit");
    const whole = readFileSync(process.execPath);
    expect(() => cutElf(whole.subarray(0, 1_000_000))).toThrow("shorter than its segments");
  });
});
