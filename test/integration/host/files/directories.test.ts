import { execFileSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  realpathSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { hostDirectories } from "../../../../src/host/files/directories.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const directories = hostDirectories();
const signal = new AbortController().signal;

describe("directories", () => {
  test("are distinguished from files and links", async () => {
    const root = realpathSync(tempDir());
    mkdirSync(join(root, "d"));
    writeFileSync(join(root, "f"), "");
    symlinkSync("d", join(root, "l"));
    symlinkSync("nowhere", join(root, "x"));
    const kinds = await Promise.all(
      ["d", "f", "l", "x", "none", "f/x"].map((name) => directories.kind(join(root, name))),
    );
    expect(kinds).toEqual(["directory", "file", "link", "link", undefined, undefined]);
    expect(await directories.realpath(join(root, "l"))).toBe(join(root, "d"));
    expect(await directories.realpath(join(root, "x"))).toBeUndefined();
  });

  test("are created one below the other, with their mode, and never through a link or a file", async () => {
    const root = tempDir();
    await directories.makeWithin(root, ["a", "b"], 0o755);
    await directories.makeWithin(root, ["a", "b", "c"], 0o755);
    expect(statSync(join(root, "a/b")).mode & 0o777).toBe(0o755);
    const outside = tempDir();
    symlinkSync(outside, join(root, "out"));
    writeFileSync(join(root, "file"), "");
    for (const parts of [["out"], ["out", "x"], ["file", "x"], ["..", "x"], ["a/b"], [""], ["."], ["a\0"]]) {
      await expect(directories.makeWithin(root, parts, 0o755)).rejects.toMatchObject({ code: "unsafe-path" });
    }
    expect(readdirSync(outside)).toEqual([]);
  });

  test("are renamed to a free name", async () => {
    const root = tempDir();
    mkdirSync(join(root, "a"));
    mkdirSync(join(root, "taken"));
    expect(await directories.move(join(root, "none"), join(root, "b"))).toBe(false);
    await expect(directories.move(join(root, "a"), join(root, "taken"))).rejects.toThrow(/already exists/);
    expect(await directories.move(join(root, "a"), join(root, "b"))).toBe(true);
    expect(readdirSync(root).sort()).toEqual(["b", "taken"]);
  });
});

test("foreign ones are moved with their owner, and removed, by a root limited to CAP_CHOWN", () => {
  const root = tempDir();
  for (const path of ["a/secret/deep", "to"]) mkdirSync(join(root, path), { recursive: true });
  writeFileSync(join(root, "a/secret/deep/f"), "");
  for (const path of ["a/secret/deep/f", "a/secret/deep", "a/secret", "a"]) chownSync(join(root, path), 1234, 1234);
  chmodSync(join(root, "a/secret"), 0o500);
  chmodSync(join(root, "a"), 0o550);
  const script = `
    const { hostDirectories } = await import(${JSON.stringify(join(process.cwd(), "src/host/files/directories.ts"))});
    const { statSync } = await import("node:fs");
    const directories = hostDirectories();
    await directories.move("${root}/a", "${root}/to/b");
    const { uid, gid, mode } = statSync("${root}/to/b");
    const isGone = await directories.removeTree("${root}/to/b", 100, new AbortController().signal);
    console.log(JSON.stringify({ uid, gid, mode: mode & 0o777, isGone }));`;
  const output = execFileSync(
    "setpriv",
    ["--bounding-set=-all,+chown", "--", process.execPath, "--input-type=module", "-e", script],
    { encoding: "utf8" },
  );
  expect(JSON.parse(output)).toEqual({ uid: 1234, gid: 1234, mode: 0o550, isGone: true });
  expect(readdirSync(join(root, "to"))).toEqual([]);
});

describe("a tree", () => {
  test("is removed without the targets of its links", async () => {
    const root = tempDir();
    const outside = tempDir();
    writeFileSync(join(outside, "kept"), "");
    mkdirSync(join(root, "t/a/b"), { recursive: true });
    writeFileSync(join(root, "t/a/f"), "");
    symlinkSync(outside, join(root, "t/a/link"));
    expect(await directories.removeTree(join(root, "t"), 100, signal)).toBe(true);
    expect(readdirSync(root)).toEqual([]);
    expect(readdirSync(outside)).toEqual(["kept"]);
    expect(await directories.removeTree(join(root, "t"), 100, signal)).toBe(true);
    symlinkSync(outside, join(root, "l"));
    expect(await directories.removeTree(join(root, "l"), 100, signal)).toBe(true);
    expect(readdirSync(outside)).toEqual(["kept"]);
  });

  test("is removed with any bytes in its names", async () => {
    const root = tempDir();
    const latin1 = Buffer.from("caf\u00e9", "latin1");
    const inside = (...parts: readonly (string | Buffer)[]): Buffer =>
      Buffer.concat(parts.flatMap((part) => [Buffer.from(part), Buffer.from("/")])).subarray(0, -1);
    mkdirSync(inside(root, "t", "sub", latin1), { recursive: true });
    for (const path of [
      ["t", latin1.subarray(0, 2)],
      ["t", "sub", latin1, latin1],
    ] as const) {
      writeFileSync(inside(root, ...path), "");
    }
    writeFileSync(inside(root, "t", "sub", Buffer.concat([latin1, latin1])), "");
    let calls = 1;
    while (!(await directories.removeTree(join(root, "t"), 100, signal)) && calls < 10) calls += 1;
    expect(readdirSync(root)).toEqual([]);
  });

  test("is removed part by part", async () => {
    const root = tempDir();
    mkdirSync(join(root, "t/sub"), { recursive: true });
    for (let i = 0; i < 25; i += 1) writeFileSync(join(root, `t/sub/f${i}`), "");
    let calls = 1;
    while (!(await directories.removeTree(join(root, "t"), 10, signal))) calls += 1;
    expect(calls).toBe(3);
    expect(existsSync(join(root, "t"))).toBe(false);
  });

  test("is removed at any depth", async () => {
    const top = join(tempDir(), "t");
    // Deeper than a path can name: built from the inside out.
    const name = "n".repeat(200);
    mkdirSync(top);
    const inner = join(top, "inner");
    mkdirSync(inner);

    for (let i = 0; i < 40; i += 1) {
      mkdirSync(join(top, "outer"));
      renameSync(inner, join(top, "outer", name));
      renameSync(join(top, "outer"), inner);
    }
    let calls = 1;
    while (!(await directories.removeTree(top, 1000, signal)) && calls < 20) calls += 1;
    expect(existsSync(top)).toBe(false);
  });

  test("stays when aborted", async () => {
    const top = join(tempDir(), "t");
    mkdirSync(join(top, "a"), { recursive: true });
    const reason = new Error("enough");
    await expect(directories.removeTree(top, 10, AbortSignal.abort(reason))).rejects.toBe(reason);
    expect(existsSync(top)).toBe(true);
  });
});
