import { describe, expect, it } from "vitest";
import { flowLog } from "../../../../src/overlay/flow/flow-log.ts";
import type { OverlayFlow } from "../../../../src/protocol/overlay/overlay.ts";
import { FakeClock } from "../../../support/fake-clock.ts";

const flow = (n: number): OverlayFlow => ({
  listener: "k",
  connector: "c",
  service: "s",
  protocol: "tcp",
  sourceIp: "127.0.0.1",
  sourcePort: 1,
  sourceBytes: n,
  destBytes: 0,
  startedAt: 0,
  endedAt: 0,
});

describe("flowLog", () => {
  it("sends 500 at once, and fewer after a second", async () => {
    const clock = new FakeClock();
    const log = flowLog(clock);
    const batches: number[] = [];
    log.deliverTo((flows) => void batches.push(flows.length));
    for (let i = 0; i < 501; i += 1) log.add(flow(i));
    expect(batches).toEqual([500]);
    await clock.advance(999);
    expect(batches).toEqual([500]);
    await clock.advance(1);
    expect(batches).toEqual([500, 1]);
    expect(clock.pendingTimers).toBe(0);
  });

  it("keeps the newest ten thousand without a subscriber, counts the others, and needs no timer", async () => {
    const clock = new FakeClock();
    const log = flowLog(clock);
    for (let i = 0; i < 25_000; i += 1) log.add(flow(i));
    expect(log.dropped).toBe(15_000);
    expect(clock.pendingTimers).toBe(0);
    const got: OverlayFlow[] = [];
    log.deliverTo((flows) => {
      expect(flows.length).toBeLessThanOrEqual(500);
      got.push(...flows);
    });
    expect(got.map(({ sourceBytes }) => sourceBytes)).toEqual(Array.from({ length: 10_000 }, (_, i) => 15_000 + i));
    log.deliverTo(undefined);
    log.add(flow(1));
    await clock.advance(10_000);
    expect(got).toHaveLength(10_000);
  });
});
