import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { mergeHops, parseHops, type Hop } from "../../../../../src/agent/telemetry/conditions/hops.ts";

/** As printed by mtr 0.95. */
const REPORT = JSON.stringify({
  report: {
    mtr: { src: "me", dst: "192.0.2.1", tos: 0, tests: 3, psize: "64", bitpattern: "0x00" },
    hubs: [
      hub(1, "10.0.0.1", { Avg: 0.4, Best: 0.3, Wrst: 0.5 }),
      hub(2, "???", { "Loss%": 100, Avg: 0, Best: 0, Wrst: 0 }),
      hub(3, "192.0.2.1", { "Loss%": 33.333, Avg: 12, Best: 11, Wrst: 13 }),
    ],
  },
});

function hub(count: number, host: string, more: Readonly<Record<string, number>>) {
  return { count, host, "Loss%": 0, Snt: 3, Last: 1, StDev: 0, ...more };
}

const aHop = (hop: number, ip: string, numRtt = 3, rtt = 1): Hop => ({
  hop,
  ip,
  minRtt: rtt,
  maxRtt: rtt,
  meanRtt: rtt,
  numRtt,
});

describe("a report", () => {
  test("gives the hops that answered, by their number", () => {
    expect(parseHops(REPORT)).toEqual([
      { hop: 1, ip: "10.0.0.1", minRtt: 0.3, maxRtt: 0.5, meanRtt: 0.4, numRtt: 3 },
      { hop: 3, ip: "192.0.2.1", minRtt: 11, maxRtt: 13, meanRtt: 12, numRtt: 2 },
    ]);
  });

  test("of an older version has its numbers as text", () => {
    const old = REPORT.replaceAll(/"(count|Snt|Avg)":([\d.]+)/g, '"$1":"$2"');
    expect(old).not.toBe(REPORT);
    expect(parseHops(old)).toEqual(parseHops(REPORT));
  });

  test.each(["", "mtr: unknown option", "{}", '{"report":{}}', "[1]", "null"])("cannot be %j", (text) => {
    expect(parseHops(text)).toBeUndefined();
  });

  test("may hold anything in place of a hop", () => {
    fc.assert(
      fc.property(fc.array(fc.jsonValue()), (hubs) => {
        for (const { hop, numRtt } of parseHops(JSON.stringify({ report: { hubs } })) ?? []) {
          expect(hop >= 1 && numRtt >= 1).toBe(true);
        }
      }),
    );
    const many = Array.from({ length: 200 }, (_, at) => hub(at + 1, "10.0.0.1", { Avg: 1, Best: 1, Wrst: 1 }));
    expect(parseHops(JSON.stringify({ report: { hubs: many } }))).toHaveLength(64);
  });
});

describe("several runs", () => {
  test("are merged, weighted by the number of answered probes", () => {
    expect(mergeHops([[aHop(1, "10.0.0.1", 3, 2)], [aHop(1, "10.0.0.1", 1, 6)]])).toEqual([
      { hop: 1, ip: "10.0.0.1", minRtt: 2, maxRtt: 6, meanRtt: 3, numRtt: 4 },
    ]);
  });

  test("over different routes name the address that answered most", () => {
    const runs = [[aHop(2, "10.0.0.2")], [aHop(2, "10.0.0.9"), aHop(1, "10.0.0.1")], [aHop(2, "10.0.0.2")]];
    expect(mergeHops(runs).map(({ hop, ip, numRtt }) => `${hop} ${ip} ${numRtt}`)).toEqual([
      "1 10.0.0.1 3",
      "2 10.0.0.2 6",
    ]);
    expect(mergeHops([])).toEqual([]);
  });
});
