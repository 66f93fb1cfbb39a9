import { execFileSync } from "node:child_process";
import { symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { hostReader } from "../../../src/host/reader.ts";
import { machineRoot } from "../../support/machine/machine-root.ts";

test("reads texts of any size through one buffer, and none leaks into the next", () => {
  const large = "é".repeat(100_000);
  const { reader } = machineRoot({ "/a/large": large, "/a/small": "small", "/a/empty": "" });
  expect(reader.read("/a/large")).toBe(large);
  expect(reader.read("/a/small")).toBe("small");
  expect(reader.read("/a/empty")).toBe("");
});

test("stops at 1 MiB", () => {
  const { reader } = machineRoot({ "/huge": "x".repeat(3 * 1024 * 1024) });
  expect(reader.read("/huge")?.length).toBe(1024 * 1024);
});

test("gives undefined for unreadable files", () => {
  const { reader } = machineRoot({ "/a/file": "x" });
  expect(reader.read("/absent")).toBeUndefined();
  expect(reader.read("/a")).toBeUndefined();
  expect(reader.list("/absent")).toBeUndefined();
  expect(reader.linkTarget("/a/file")).toBeUndefined();
  expect(reader.fingerprint("/absent")).toBeUndefined();
  expect(reader.space("/absent")).toBeUndefined();
});

test("the fingerprint follows a symbolic link and changes with the file behind it", () => {
  const { root, reader } = machineRoot({ "/run/real": "a", "/etc/link": "-> ../run/real" });
  const before = reader.fingerprint("/etc/link");
  expect(before).toBeDefined();
  expect(reader.fingerprint("/etc/link")).toBe(before);
  writeFileSync(join(root, "run/real"), "ab");
  expect(reader.fingerprint("/etc/link")).not.toBe(before);
});

test("the size of the root file system equals that of df", () => {
  const [, size] = execFileSync("df", ["-B1", "--output=size", "/"], { encoding: "utf8" }).trim().split("\n");
  expect(hostReader().space("/")?.totalBytes).toBe(Number(size));
});

test("gives undefined for a pipe and a device, without blocking", () => {
  const { root, reader } = machineRoot({ "/a/file": "x" });
  execFileSync("mkfifo", [join(root, "a/pipe")]);
  symlinkSync("/dev/zero", join(root, "a/device"));
  expect(reader.read("/a/pipe")).toBeUndefined();
  expect(reader.read("/a/device")).toBeUndefined();
});
