import { describe, expect, test } from "vitest";
import { afterPowerCut, fileOps, type FileOp, type Survival, type Tree } from "../../support/kills/power-cut.ts";
import { parseTrace } from "../../support/kills/strace-text.ts";

const open = (path: string): FileOp => ({ do: "open", path, creates: true, truncates: true });
const write = (path: string, text: string, at?: number): FileOp => ({ do: "write", path, at, data: Buffer.from(text) });
const sync = (path: string): FileOp => ({ do: "sync", path });
const rename = (path: string, to: string): FileOp => ({ do: "rename", path, to });

function left(before: Record<string, string>, ops: readonly FileOp[], survival: Survival): Record<string, string> {
  const tree: Tree = new Map(
    Object.entries(before).map(([path, text]) => [path, text === "/" ? "directory" : Buffer.from(text)]),
  );
  const after = afterPowerCut(tree, ops, survival);
  return Object.fromEntries(
    [...after].map(([path, content]) => [path, content === "directory" ? "/" : content.toString()]),
  );
}

describe("a power cut", () => {
  const old = { a: "old" };
  const careless = [open("t"), write("t", "new"), rename("t", "a")];
  const careful = [open("t"), write("t", "new"), sync("t"), rename("t", "a")];

  test.each<[string, readonly FileOp[], Survival, Record<string, string>]>([
    ["a rename without syncs", careless, "nothing", { a: "old" }],
    ["a rename without syncs", careless, "all", { a: "new" }],
    ["a rename without syncs", careless, "names", { a: "" }],
    ["a rename without syncs", careless, "data", { a: "old" }],
    ["a rename without syncs", careless, "torn", { a: "n" }],
    ["a synced file under a new name", careful, "nothing", { a: "old" }],
    ["a synced file under a new name", careful, "names", { a: "new" }],
    ["a synced file under a new name", careful, "torn", { a: "new" }],
    ["both synced", [...careful, sync("")], "nothing", { a: "new" }],
    ["a name alone", [open("t"), write("t", "x"), sync("")], "nothing", { a: "old", t: "" }],
    ["a removal", [{ do: "unlink", path: "a" }], "nothing", { a: "old" }],
    ["a removal", [{ do: "unlink", path: "a" }], "names", {}],
    ["a truncation", [{ do: "truncate", path: "a", size: 1 }], "all", { a: "o" }],
    ["a truncation", [{ do: "truncate", path: "a", size: 1 }], "nothing", { a: "old" }],
    ["a write in the middle", [write("a", "X", 1)], "data", { a: "oXd" }],
    ["writes one after the other", [open("a"), write("a", "1"), write("a", "2")], "all", { a: "12" }],
  ])("after %s: %j survives %s", (_what, ops, survival, expected) => {
    expect(left(old, ops, survival)).toEqual(expected);
  });

  test("removes everything below a directory whose own name was not synced", () => {
    const ops: readonly FileOp[] = [{ do: "mkdir", path: "d" }, open("d/f"), write("d/f", "x"), sync("d/f"), sync("d")];
    expect(left({}, ops, "nothing")).toEqual({});
    expect(left({}, [...ops, sync("")], "nothing")).toEqual({ d: "/", "d/f": "x" });
  });

  test("at random keeps some sectors and not others, the same for the same seed", () => {
    const ops = [write("a", "x".repeat(100 * 512), 0), sync("a"), write("a", "y".repeat(100 * 512), 0)];
    const first = left(old, ops, 7);
    expect(first).toEqual(left(old, ops, 7));
    expect(first).not.toEqual(left(old, ops, 8));
    const sectors = (first["a"] ?? "").match(/.{512}/g) ?? [];
    expect(new Set(sectors)).toEqual(new Set(["x".repeat(512), "y".repeat(512)]));
  });

  test("cannot be replayed from a recording that lacks the beginning", () => {
    expect(() => left({}, [write("a", "x")], "all")).toThrow("a, which is not there");
  });
});

describe("a recording", () => {
  const hex = (text: string): string => Buffer.from(text).toString("hex").replaceAll(/../g, "\\x$&");
  const threadOf = (tid: number | undefined) => (tid === 1 ? "main" : "pool");

  test("of two threads gives the operations in the order of their ends, without failed ones and other paths", () => {
    const text = [
      `1 openat(AT_FDCWD<${hex("/w")}>, "${hex("/w/s/é")}", O_RDWR|O_CREAT, 0600) = 5<${hex("/w/s/é")}>`,
      `2 fsync(7<${hex("/w/s")}> <unfinished ...>`,
      `1 pwrite64(5<${hex("/w/s/é")}>, "${hex('a"), b\n')}", 7, 4096) = 6`,
      `2 <... fsync resumed>)        = 0`,
      `1 unlink("${hex("/w/s/no")}") = -1 ENOENT (No such file or directory)`,
      `2 write(8<${hex("/elsewhere")}>, "${hex("x")}", 1) = 1`,
      `2 openat(AT_FDCWD<${hex("/w")}>, "${hex("/w/s/é")}", O_RDONLY|O_CLOEXEC) = 9<${hex("/w/s/é")}>`,
      `2 rename("${hex("/w/s/é")}", "${hex("/w/s/f")}") = ?`,
      "+++ killed by SIGKILL +++",
    ].join("\n");
    const calls = parseTrace(text, threadOf);
    expect(calls.map(({ thread, name, result }) => [thread, name, result])).toEqual([
      ["main", "openat", 5],
      ["main", "pwrite64", 6],
      ["pool", "fsync", 0],
      ["main", "unlink", -1],
      ["pool", "write", 1],
      ["pool", "openat", 9],
      ["pool", "rename", undefined],
    ]);
    expect(fileOps(calls, "/w")).toEqual([
      { do: "open", path: "s/é", creates: true, truncates: false },
      { do: "write", path: "s/é", at: 4096, data: Buffer.from('a"), b') },
      { do: "sync", path: "s" },
    ]);
  });

  test("with a call that the replay does not support is refused", () => {
    const calls = parseTrace(`writev(5<${hex("/w/a")}>, [{iov_base="${hex("x")}", iov_len=1}], 1) = 1`, threadOf);
    expect(() => fileOps(calls, "/w")).toThrow("writev");
  });
});
