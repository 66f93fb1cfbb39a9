import { describe, expect, test } from "vitest";
import {
  contentPath,
  isOverlap,
  parseQuarantined,
  quarantineEntry,
  shapeOf,
} from "../../../../../src/agent/containers/volumes/volume-paths.ts";

const shape = (name: string, location?: string, encrypted = false) => shapeOf({ name, location, encrypted });

describe("the path of a volume", () => {
  test.each([
    ["data", undefined, false, ["volumes", "data"]],
    ["data", undefined, true, ["volumes", ".encrypted", "data.img"]],
    ["data", "a/b", false, ["a", "b"]],
    ["data", "/a//b/./", false, ["a", "b"]],
    ["data", "a", true, ["a", "data.img"]],
  ])("%s at %s", (name, location, encrypted, parts) => {
    expect(shape(name, location, encrypted)).toEqual({ encrypted, parts });
  });

  test.each([
    ["..", undefined],
    ["a/b", undefined],
    [".hidden", undefined],
    ["", undefined],
    ["a".repeat(64), undefined],
    ["data", ""],
    ["data", "/"],
    ["data", "."],
    ["data", ".."],
    ["data", "a/../../etc"],
    ["data", ".quarantine"],
    ["data", "a/.hidden"],
    ["data", "volumes"],
    ["data", "/volumes/other"],
    ["data", "a\0b"],
    ["data", "a\nb"],
    ["data", "x/".repeat(17)],
    ["data", "x".repeat(201)],
    ["data", "ü".repeat(101)],
  ])("cannot be %j at %j", (name, location) => {
    expect(shape(name, location)).toEqual({ wrong: expect.any(String) as unknown });
  });

  test("is not within that of another volume", () => {
    const at = (...parts: string[]) => ({ encrypted: false, parts });
    expect(isOverlap(at("a"), at("a"))).toBe(true);
    expect(isOverlap(at("a"), at("a", "b"))).toBe(true);
    expect(isOverlap(at("a", "b"), at("a"))).toBe(true);
    expect(isOverlap(at("a"), at("ab"))).toBe(false);
    expect(isOverlap(at("a", "b"), at("a", "c"))).toBe(false);
  });

  test("of an encrypted one exists for containers only while it is open", () => {
    expect(contentPath("/s", "x", { encrypted: true, parts: ["a", "x.img"] })).toBe("/s/volumes/.mounts/x/content");
    expect(contentPath("/s", "x", { encrypted: false, parts: ["a"] })).toBe("/s/a");
  });
});

test("an entry of the quarantine carries its own end time", () => {
  const entry = quarantineEntry("a.b-c_d", 1000, 2000);
  expect(parseQuarantined(entry)).toEqual({ entry, name: "a.b-c_d", beganAt: 1000, endsAt: 2000 });
  for (const other of ["a", "a@1", "../a@1@2", "a@x@1", "a@1@2@3", "@1@2"])
    expect(parseQuarantined(other)).toBeUndefined();
});
