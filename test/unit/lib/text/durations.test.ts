import { describe, expect, it } from "vitest";
import {
  formatBytes,
  formatCount,
  formatDuration,
  formatMoment,
  formatSpan,
} from "../../../../src/lib/text/durations.ts";

describe("durations", () => {
  it.each([
    [0, "0 s"],
    [-5, "0 s"],
    [59_999, "59 s"],
    [99_000, "99 s"],
    [100_000, "1 min"],
    [99 * 60_000, "99 min"],
    [100 * 60_000, "1 h"],
    [47 * 3_600_000, "47 h"],
    [49 * 3_600_000, "2 d"],
    [1e15, "11574074 d"],
  ])("writes %d ms as %s", (ms, text) => {
    expect(formatDuration(ms)).toBe(text);
  });

  it("distinguishes past and future", () => {
    expect(formatMoment(10_000, 10_500)).toBe("now");
    expect(formatMoment(10_000, 15_000)).toBe("5 s ago");
    expect(formatMoment(20_000, 15_000)).toBe("in 5 s");
  });

  it("writes a duration, and a plural", () => {
    expect([-1, 999, 1000, 120_000].map(formatSpan)).toEqual(["just now", "just now", "for 1 s", "for 2 min"]);
    expect([0, 1, 2].map((count) => formatCount(count, "step"))).toEqual(["0 steps", "1 step", "2 steps"]);
    expect([0, 1].map((count) => formatCount(count, "child", "children"))).toEqual(["0 children", "1 child"]);
  });

  it.each([
    [0, "0 B"],
    [999, "999 B"],
    [1500, "1.5 kB"],
    [62_000_000, "62 MB"],
    [5e15, "5000 TB"],
  ])("writes %d bytes as %s", (bytes, text) => {
    expect(formatBytes(bytes)).toBe(text);
  });
});
