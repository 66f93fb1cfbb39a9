import { describe, expect, it } from "vitest";
import { emptyBuckets, usageRange } from "../../../../src/controller/stats/usage.ts";

const NOW = 1_760_000_000;

describe("a usage range", () => {
  it("is the last 24 hours by default, cut at whole intervals", () => {
    const range = usageRange({ intervalInMinutes: 60 }, NOW);
    const buckets = emptyBuckets(range);
    expect(buckets).toHaveLength(25);
    expect(buckets[0]).toEqual({ bytes: 0, count: 0, t: Math.floor((NOW - 86_400) / 3600) * 3600 });
    expect(buckets.at(-1)?.t).toBeLessThan(NOW);
    expect(buckets.every(({ t }, index) => index === 0 || t - (buckets[index - 1]?.t ?? 0) === 3600)).toBe(true);
  });

  it("takes absolute and relative times", () => {
    expect(usageRange({ start: 600, end: 1200, intervalInMinutes: 5 }, NOW)).toEqual({
      from: 600,
      to: 1200,
      bucketSeconds: 300,
    });
    const relative = usageRange({ relative_start: "-7 days", relative_end: "now", intervalInMinutes: 1440 }, NOW);
    expect(relative).toEqual({
      from: Math.floor((NOW - 7 * 86_400) / 86_400) * 86_400,
      to: NOW,
      bucketSeconds: 86_400,
    });
    expect(emptyBuckets({ from: 0, to: 300, bucketSeconds: 300 })).toHaveLength(1);
  });

  it.each([
    { start: 10, end: 10 },
    { start: 20, end: 10 },
    { start: 10, relative_start: "-1 day" },
    { end: 10, relative_end: "now" },
    { relative_start: "yesterday" },
    { relative_start: "-999999 years" },
    { relative_end: "+999999 years" },
    { start: 0, end: 10_001 * 60, intervalInMinutes: 1 },
  ])("refuses %j", (query) => {
    expect(() => usageRange({ intervalInMinutes: 60, ...query }, NOW)).toThrow(
      expect.objectContaining({ code: "invalid-query" }),
    );
  });

  it("holds ten thousand buckets and not one more", () => {
    const most = usageRange({ start: 0, end: 10_000 * 60, intervalInMinutes: 1 }, NOW);
    expect(emptyBuckets(most)).toHaveLength(10_000);
  });
});
