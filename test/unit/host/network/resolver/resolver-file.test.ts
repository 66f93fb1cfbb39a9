import { lstatSync, readFileSync, readlinkSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import {
  changeResolverFile,
  parseResolverFileChange,
  resolverFile,
} from "../../../../../src/host/network/resolver/resolver-file.ts";
import { fakeTools } from "../../../../support/fake-tools.ts";
import { tempDir } from "../../../../support/temp-dir.ts";

const signal = new AbortController().signal;

describe("a change requested by another process", () => {
  test.each<[string, unknown, RegExp]>([
    ["of no kind", { kind: "move", path: "/etc/passwd" }, /kind/],
    ["of another file", { kind: "text", text: "", mode: 0o644, path: "/etc/passwd" }, /path/],
    ["that runs with rights of its owner", { kind: "text", text: "", mode: 0o4755 }, /mode/],
    ["larger than such a file is", { kind: "text", text: "x".repeat(131_073), mode: 0o644 }, /text/],
    ["that would lead elsewhere", { kind: "link", target: "../root/.ssh/authorized_keys" }, /no resolv\.conf\(5\)/],
  ])("%s is refused", (_what, change, why) => {
    expect(() => parseResolverFileChange(JSON.stringify(change))).toThrow(why);
  });

  test("that is not JSON is refused", () => {
    expect(() => parseResolverFileChange("nameserver 192.0.2.1")).toThrow("it is not JSON");
  });

  test("never makes the file world-writable", () => {
    const change = parseResolverFileChange(JSON.stringify({ kind: "text", text: "", mode: 0o666 }));
    expect(change).toEqual({ kind: "text", text: "", mode: 0o664 });
  });
});

test("replaces, links and removes the file", async () => {
  const path = join(tempDir(), "resolv.conf");
  await changeResolverFile(path, { kind: "text", text: "nameserver 192.0.2.1\n", mode: 0o640 });
  expect([readFileSync(path, "utf8"), statSync(path).mode & 0o777]).toEqual(["nameserver 192.0.2.1\n", 0o640]);
  await changeResolverFile(path, { kind: "link", target: "resolv.conf.other" });
  expect(readlinkSync(path)).toBe("resolv.conf.other");
  await changeResolverFile(path, { kind: "absent", mode: 0o644 });
  expect(lstatSync(path, { throwIfNoEntry: false })).toBeUndefined();
});

test("a file in a writable directory needs no unit", async () => {
  const path = join(tempDir(), "resolv.conf");
  const tools = fakeTools({ "systemd-run": "exit 1" });
  writeFileSync(path, "");
  await resolverFile(tools.exec, path, true)({ kind: "text", text: "nameserver 192.0.2.1\n", mode: 0o644 }, signal);
  expect(readFileSync(path, "utf8")).toBe("nameserver 192.0.2.1\n");
  expect(tools.calls("systemd-run")).toEqual([]);
});
