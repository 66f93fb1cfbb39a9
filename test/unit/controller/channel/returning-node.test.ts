import { expect, test } from "vitest";
import { streamBounds } from "../../../../src/agent/telemetry/spool.ts";
import { RECORDS_PER_MESSAGE } from "../../../../src/controller/channel/node-methods.ts";
import { MessageBudget } from "../../../../src/lib/async/message-budget.ts";
import { countValues } from "../../../../src/lib/formats/strict-json.ts";
import { SESSION_BUDGET, VALUES_PER_MESSAGE } from "../../../../src/protocol/channel/envelope.ts";
import { recordByStream, StreamName } from "../../../../src/protocol/documents/telemetry.ts";

const RTT = { minRtt: 10.123, maxRtt: 20.123, meanRtt: 15.123 };
const hop = (n: number) => ({ hop: n, ip: `192.0.2.${n}`, fqdn: `hop${n}.isp.example`, ...RTT, numRtt: 10 });
/** A record of each stream as nodes send it, with more fields than most. */
const RECORDS: Readonly<Record<StreamName, object>> = {
  events: {
    eventType: "Gateway Connectivity",
    level: "WARNING",
    message: "the gateway edge-2 is unreachable",
    timestamp: 1_800_000_000,
    state: "EXCEEDED",
    details: { gateway: "edge-2", reason: "timeout" },
  },
  audits: { category: "config", value: "local changed the network", timestamp: 1_800_000_000 },
  metrics: { t: 1_800_000_000, m: Object.fromEntries(Array.from({ length: 200 }, (_, n) => [`net.eth${n}.rx`, n])) },
  "gateway-details": {
    time: 1_800_000_000_000,
    node: "edge-2",
    path: "default",
    ...RTT,
    stdRtt: 1.123,
    numRtt: 10,
    hops: Array.from({ length: 12 }, (_, n) => hop(n + 1)),
  },
  flows: {
    sourceNode: "edge-1",
    destNode: "edge-2",
    sourceIP: "192.0.2.7",
    destIP: "198.51.100.7",
    sourcePort: 40_002,
    destPort: 443,
    sourceBytes: 920,
    destBytes: 18_400,
    startTime: "2026-01-02T03:04:05.678Z",
    endTime: "2026-01-02T03:05:05.678Z",
    protocol: "TCP",
    tcpFlags: "27",
    flags: "0",
    meta: { flow: "bbc0ccb9-1b6a-476b-8fcb-9f613a1e9b77", connector: "web", service: "shop", reason: "idle" },
  },
  output: { container: "c1", name: "web", run: "r1", stream: "stdout", at: 1_800_000_000_000, text: "GET / 200" },
};
const BATCH = 500;

test("the records of this test are those of nodes", () => {
  const wrong = StreamName.options.filter((name) => !recordByStream[name].safeParse(RECORDS[name]).success);
  expect(wrong).toEqual([]);
});

test("a node that sends all that it can have kept during an outage stays within the patience of the budget", () => {
  const budget = new MessageBudget(SESSION_BUDGET, 0);
  let now = 0;
  for (const name of StreamName.options) {
    const record = RECORDS[name];
    const size = JSON.stringify(record).length;
    const { maxRecords, maxBytes } = streamBounds[name];
    for (let left = Math.min(maxRecords, Math.floor(maxBytes / size)); left > 0; left -= BATCH) {
      const count = Math.min(BATCH, left);
      const values = Math.floor((count * countValues(record)) / VALUES_PER_MESSAGE);
      const verdict = budget.charge({ messages: 1 + values + count / RECORDS_PER_MESSAGE, bytes: count * size }, now);
      expect(verdict.kind).not.toBe("exceeded");
      if (verdict.kind === "pause") now += verdict.ms;
    }
  }
  // It is over its budget for a while, so the limit matters.
  expect(now).toBeGreaterThan(0);
});
