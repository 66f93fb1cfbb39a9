import { describe, expect, it } from "vitest";
import { editDistance, nearest } from "../../../../src/lib/text/nearest.ts";

describe("nearest", () => {
  const verbs = ["status", "health", "logs", "trigger", "reset", "reset-floor"];

  it.each([
    ["stauts", "status"],
    ["log", "logs"],
    ["triger", "trigger"],
    ["reset-flor", "reset-floor"],
    ["halth", "health"],
  ])("returns %s for %s", (typed, meant) => {
    expect(nearest(typed, verbs)).toBe(meant);
  });

  it.each(["", "xyzzy", "x".repeat(100_000)])("returns nothing for distant words", (typed) => {
    expect(nearest(typed, verbs)).toBeUndefined();
  });

  it("counts a swap of neighbours as one edit", () => {
    expect(editDistance("ab", "ba")).toBe(1);
    expect(editDistance("", "abc")).toBe(3);
    expect(editDistance("kitten", "sitting")).toBe(3);
  });
});
