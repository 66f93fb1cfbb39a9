import { describe, expect, it } from "vitest";
import { formatBytes, formatDuration, formatMoment } from "../../../src/lib/durations.ts";

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
  ])("says %d ms as %s", (ms, text) => {
    expect(formatDuration(ms)).toBe(text);
  });

  it("says which side of now a moment is on", () => {
    expect(formatMoment(10_000, 10_500)).toBe("now");
    expect(formatMoment(10_000, 15_000)).toBe("5 s ago");
    expect(formatMoment(20_000, 15_000)).toBe("in 5 s");
  });

  it.each([
    [0, "0 B"],
    [999, "999 B"],
    [1500, "1.5 kB"],
    [62_000_000, "62 MB"],
    [5e15, "5000 TB"],
  ])("says %d bytes as %s", (bytes, text) => {
    expect(formatBytes(bytes)).toBe(text);
  });
});
