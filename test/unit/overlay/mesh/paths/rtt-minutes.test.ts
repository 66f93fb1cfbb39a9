import { describe, expect, it } from "vitest";
import { RttMinutes } from "../../../../../src/overlay/mesh/paths/rtt-minutes.ts";

const WAY = { gateway: "g", path: "wan2" };
const MINUTE = 60_000;

describe("round trips for each minute", () => {
  it("count sent probes and describe the answered ones", () => {
    const minutes = new RttMinutes(WAY);
    for (const at of [0, 20_000, 40_000, 50_000]) minutes.sent(at);
    for (const [at, rtt] of [
      [0, 10],
      [20_000, 20],
      [40_000, 60],
    ] as const)
      minutes.answered(at, rtt);
    const [bucket] = minutes.close(MINUTE + 5000);
    expect(bucket).toMatchObject({ ...WAY, time: 0, numRtt: 4, answered: 3, minRtt: 10, maxRtt: 60, meanRtt: 30 });
    expect(bucket?.stdRtt).toBeCloseTo(Math.sqrt((400 + 100 + 900) / 3), 9);
    expect(minutes.close(10 * MINUTE)).toEqual([]);
  });

  it("close a minute when its last answer is due, which counts for the minute of sending", () => {
    const minutes = new RttMinutes(WAY);
    minutes.sent(59_900);
    minutes.sent(60_100);
    expect(minutes.close(64_000)).toEqual([]);
    minutes.answered(59_900, 3000);
    expect(minutes.close(65_000)).toMatchObject([{ time: 0, numRtt: 1, meanRtt: 3000, stdRtt: 0 }]);
  });

  it("skip a minute without an answer", () => {
    const minutes = new RttMinutes(WAY);
    minutes.sent(0);
    expect(minutes.close(2 * MINUTE)).toEqual([]);
    minutes.answered(0, 5);
    expect(minutes.close(2 * MINUTE)).toEqual([]);
  });

  it("are all reported at the end, and when the clock was set back", () => {
    const minutes = new RttMinutes(WAY);
    minutes.sent(600_000);
    minutes.answered(600_000, 7);
    expect(minutes.close(600_001)).toEqual([]);
    expect(minutes.close(60_000)).toHaveLength(1);
    minutes.sent(60_000);
    minutes.answered(60_000, 7);
    expect(minutes.close(60_001, true)).toHaveLength(1);
  });
});
