import fc from "fast-check";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, test } from "vitest";
import { flowRecorder, flowRecordOf } from "../../../../src/agent/telemetry/flow-records.ts";
import { Spool, spoolMigration } from "../../../../src/agent/telemetry/spool.ts";
import { OverlayFlow, OverlayReason } from "../../../../src/protocol/overlay/overlay.ts";
import { DEFUNCT_FLAGS, flowFlags, FlowRecord } from "../../../../src/protocol/documents/telemetry.ts";
import { validValues } from "../../../support/arbitrary.ts";
import { uidOf } from "../../../support/overlay/mesh.ts";
import { FakeClock } from "../../../support/fake-clock.ts";
import { runs } from "../../../support/sample.ts";

const PEER = uidOf(4);
const FLOW: OverlayFlow = {
  listener: "tcp 127.0.0.1 8080",
  connector: "web",
  service: "intranet",
  protocol: "tcp",
  sourceIp: "192.0.2.7",
  sourcePort: 40_000,
  id: "5f2e",
  destIp: "10.0.0.5",
  destPort: 80,
  backend: { ip: "2001:db8::5", port: 8080 },
  sourceBytes: 120,
  destBytes: 4096,
  startedAt: Date.UTC(2026, 0, 2, 3, 4, 5, 6),
  endedAt: Date.UTC(2026, 0, 2, 3, 4, 6),
};

const NAMES = { own: () => "me", nameOf: (uid: string) => (uid === PEER ? "branch" : uid) };

describe("the record of a flow", () => {
  test("to another node names both, and which one opened it", () => {
    expect(flowRecordOf({ ...FLOW, peer: PEER }, NAMES)).toMatchObject({ sourceNode: "me", destNode: "branch" });
    const origin = { ip: "10.0.0.2", port: 41_000 };
    const brought = flowRecordOf({ ...FLOW, peer: PEER, listener: "", origin }, NAMES);
    expect(brought).toMatchObject({ sourceNode: "branch", destNode: "me" });
    expect(brought.meta).toMatchObject({
      flow: "5f2e",
      connector: "web",
      service: "intranet",
      origin: "10.0.0.2:41000",
    });
  });

  test("has the fields of the platform", () => {
    expect(flowRecordOf(FLOW, NAMES)).toEqual({
      sourceNode: "local",
      destNode: "local",
      sourceIP: "192.0.2.7",
      destIP: "10.0.0.5",
      sourcePort: 40_000,
      destPort: 80,
      sourceBytes: 120,
      destBytes: 4096,
      startTime: "2026-01-02T03:04:05.006Z",
      endTime: "2026-01-02T03:04:06.000Z",
      protocol: "TCP",
      flags: "0",
      meta: { flow: "5f2e", connector: "web", service: "intranet", backend: "[2001:db8::5]:8080" },
    });
  });

  test("of an open flow is marked so, with its bytes by the minute", () => {
    const usage = [{ t: 1_767_323_040, bytes: 7 }];
    expect(flowRecordOf({ ...FLOW, interim: true, usage }, NAMES)).toMatchObject({ usage, meta: { interim: true } });
  });

  test("refused before it had a target has none", () => {
    const { id: _id, destIp: _, destPort: __, backend: ___, ...refused } = FLOW;
    const record = flowRecordOf({ ...refused, protocol: "udp", reason: "source-not-permitted" }, NAMES);
    expect(record).toMatchObject({ destIP: "", destPort: 0, protocol: "UDP", flags: "65536" });
    expect(record.meta).toEqual({ connector: "web", service: "intranet", reason: "source-not-permitted" });
  });

  test("is defunct when denied, and not when its target or a limit ended it", () => {
    const denied = OverlayReason.options.filter((reason) => {
      const { flags } = flowRecordOf({ ...FLOW, reason }, NAMES);
      return (Number(flags) & DEFUNCT_FLAGS) !== 0;
    });
    expect(denied.sort()).toEqual([
      "literal-not-permitted",
      "loop",
      "no-path",
      "not-granted",
      "peer-absent",
      "peer-unproven",
      "protocol-mismatch",
      "relay-refused",
      "resolve-failed",
      "service-down",
      "source-not-permitted",
      "unknown-service",
      "unreachable",
    ]);
    expect(flowRecordOf({ ...FLOW, reason: "service-down" }, NAMES).flags).toBe(String(flowFlags["no-route"]));
  });

  test("never ends before its start, whatever the clock did", () => {
    const { startTime, endTime } = flowRecordOf({ ...FLOW, endedAt: FLOW.startedAt - 5000 }, NAMES);
    expect(endTime).toBe(startTime);
  });

  test("is valid on the wire, for any report of the overlay", () => {
    fc.assert(
      fc.property(validValues(OverlayFlow), (value) => {
        const record = flowRecordOf(OverlayFlow.parse(value), NAMES);
        expect(FlowRecord.parse(JSON.parse(JSON.stringify(record)))).toEqual(record);
      }),
      { numRuns: runs(500) },
    );
    const longest = { ...FLOW, connector: "\0".repeat(253), service: "\uD800".repeat(253), reason: "idle" } as const;
    expect(FlowRecord.safeParse(flowRecordOf(longest, NAMES)).success).toBe(true);
  });
});

describe("the recorder", () => {
  function setUp() {
    const clock = new FakeClock();
    const sql = new DatabaseSync(":memory:");
    sql.exec(spoolMigration);
    const spool = new Spool(sql, () => undefined);
    let polls = 0;
    const recorder = flowRecorder({ names: NAMES, clock, spool, onReady: () => void (polls += 1) });
    return { clock, spool, recorder, polls: () => polls };
  }
  const flows = (count: number) => Array.from({ length: count }, () => FLOW);

  test("sends few flows together after ten seconds", async () => {
    const { clock, spool, recorder, polls } = setUp();
    recorder.take(flows(1));
    await clock.advance(9999);
    recorder.take(flows(3));
    expect([polls(), spool.status().flows.queued]).toEqual([0, 4]);
    await clock.advance(1);
    expect(polls()).toBe(1);
    expect(spool.batch("flows")?.records[3]).toEqual(flowRecordOf(FLOW, NAMES));
    await clock.advance(60_000);
    expect(polls()).toBe(1);
  });

  test("sends many at once, and leaves no timer", () => {
    const { clock, recorder, polls } = setUp();
    recorder.take(flows(200));
    recorder.take(flows(300));
    expect([polls(), clock.pendingTimers]).toEqual([1, 0]);
    recorder.take([]);
    expect(clock.pendingTimers).toBe(0);
    recorder.take(flows(1));
    recorder.close();
    expect([polls(), clock.pendingTimers]).toEqual([1, 0]);
  });
});
