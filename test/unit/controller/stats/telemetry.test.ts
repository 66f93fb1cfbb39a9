import { array, assert, integer, nat, property, record } from "fast-check";
import { expect, test } from "vitest";
import { newRecords, sortRecords } from "../../../../src/controller/stats/telemetry.ts";
import { MetricSample, NodeEvent } from "../../../../src/protocol/documents/telemetry.ts";

const numbered = (first: number, count: number) => Array.from({ length: count }, (_, i) => ({ seq: first + i }));

test.each([
  ["the first push", 0, 1, 3, [1, 2, 3], 3],
  ["all of it known", 5, 3, 3, [], 5],
  ["half of it known", 4, 3, 3, [5], 5],
  ["the next ones", 5, 6, 2, [6, 7], 7],
  ["a gap", 5, 9, 2, [9, 10], 10],
])("%s", (_what, acknowledged, first, count, seqs, last) => {
  const taken = newRecords(acknowledged, { first, records: numbered(first, count) });
  expect(taken.records.map((item) => item["seq"])).toEqual(seqs);
  expect(taken.last).toBe(last);
});

test("whatever is resent, every record is stored once and in order", () => {
  const pushes = array(record({ back: nat({ max: 10 }), count: integer({ min: 1, max: 10 }) }), {
    maxLength: 30,
  });
  assert(
    property(pushes, (plan) => {
      let acknowledged = 0;
      const stored: unknown[] = [];
      for (const { back, count } of plan) {
        const first = Math.max(1, acknowledged + 1 - back);
        const taken = newRecords(acknowledged, { first, records: numbered(first, count) });
        stored.push(...taken.records.map((item) => item["seq"]));
        acknowledged = taken.last;
      }
      expect(stored).toEqual(Array.from({ length: acknowledged }, (_, i) => i + 1));
    }),
  );
});

test("records are sorted one by one, and unknown fields go", () => {
  const sample = { t: 60, m: { cpu: 1 } };
  const { good, bad } = sortRecords(MetricSample, [
    { ...sample, uid: "x" },
    { t: "x", m: {} },
  ]);
  expect(good).toEqual([sample]);
  expect(bad).toHaveLength(1);
  expect(bad[0]).toContain("t:");
  const event = { eventType: "x", level: "INFO", message: "", timestamp: 1, state: "UNKNOWN" };
  const large = { ...event, details: { text: "x".repeat(40_000) } };
  expect(sortRecords(NodeEvent, [large]).bad).toEqual(["larger than 32 KiB"]);
});
