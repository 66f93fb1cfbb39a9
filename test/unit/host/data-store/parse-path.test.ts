import { describe, expect, test } from "vitest";
import { isHidden, parseNewPath, parsePath } from "../../../../src/host/data-store/parse-path.ts";

const long = "x".repeat(255);

describe("a path", () => {
  test.each([
    ["/", []],
    ["", []],
    ["a", ["a"]],
    ["/a/b", ["a", "b"]],
    ["//a/./b//", ["a", "b"]],
    ["a/...", ["a", "..."]],
    ["a/..b", ["a", "..b"]],
    ["%2e%2e/%2f", ["%2e%2e", "%2f"]],
    ["..%2f..", ["..%2f.."]],
    ["..\\..\\etc", ["..\\..\\etc"]],
    ["\u2025/\uff0e\uff0e", ["\u2025", "\uff0e\uff0e"]],
    ["a\nb/\u001b[31mc", ["a\nb", "\u001b[31mc"]],
    ["caf\u00e9/cafe\u0301", ["caf\u00e9", "cafe\u0301"]],
    [".hidden/x", [".hidden", "x"]],
    ["volumes/data/.hidden", ["volumes", "data", ".hidden"]],
    ["images/.quarantine", ["images", ".quarantine"]],
    [long, [long]],
    [Array.from({ length: 32 }, () => "d").join("/"), Array.from({ length: 32 }, () => "d")],
  ])("%j is split into names", (path, names) => {
    expect(parsePath(path)).toEqual(names);
  });

  test.each([
    "..",
    "../etc/passwd",
    "a/../..",
    "/../a",
    "a/..",
    "a/../b",
    "a\0b",
    "a/\ud800",
    `${long}x`,
    "\u00e9".repeat(128),
    Array.from({ length: 33 }, () => "d").join("/"),
    ".holdfast-1.part",
    "a/.holdfast-x/b",
  ])("%j is not a path of the store", (path) => {
    expect(() => parsePath(path)).toThrow(expect.objectContaining({ code: "bad-path" }));
  });

  test.each(["volumes/.quarantine", "/volumes/.mounts/db/x", "volumes//.encrypted/db.img", "volumes/./.x"])(
    "%j belongs to the agent",
    (path) => {
      expect(() => parsePath(path)).toThrow(expect.objectContaining({ code: "forbidden-path" }));
    },
  );

  test("of a new file has no control characters", () => {
    for (const path of ["a\nb", "x/\u001b[2J", "a\u007f", "a\u009bb/c"]) {
      expect(() => parseNewPath(path)).toThrow(expect.objectContaining({ code: "bad-path" }));
    }
    expect(parseNewPath("images/caf\u00e9 1.img")).toEqual(["images", "caf\u00e9 1.img"]);
  });

  test("is on one line in messages", () => {
    expect(() => parsePath("../\n\u001b[2J\u009b")).toThrow(/^\P{Cc}+$/u);
  });
});

test("hides in a listing what cannot be requested", () => {
  expect(isHidden([], ".holdfast-1.part")).toBe(true);
  expect(isHidden(["volumes"], ".mounts")).toBe(true);
  expect(isHidden(["volumes", "db"], ".mounts")).toBe(false);
  expect(isHidden(["images"], ".x")).toBe(false);
  expect(isHidden([Buffer.from("volumes")], ".x")).toBe(false);
});
