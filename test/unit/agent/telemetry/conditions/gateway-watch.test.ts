import { describe, expect, test } from "vitest";
import { createEventLog, type OpenEvent } from "../../../../../src/agent/telemetry/events.ts";
import { gatewayWatch } from "../../../../../src/agent/telemetry/conditions/gateway-watch.ts";
import type { MeshStanding } from "../../../../../src/host/overlay/client.ts";
import type { OverlayMesh, PathState } from "../../../../../src/protocol/overlay/mesh.ts";
import { normaliseGateway } from "../../../../../src/protocol/sections/gateway/gateway.ts";
import type { NodeEvent } from "../../../../../src/protocol/documents/telemetry.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";
import { aMesh, aMeshState, aPathState, uidOf } from "../../../../support/overlay/mesh.ts";

const EVERY = 20_000;
const MONITOR = { node: "gw1", maxLatency: 100, triggerCount: 2, recoverCount: 1 };
const SERVED = aMesh({ server: { addresses: ["0.0.0.0"], port: 8443 }, ingressBitsPerSecond: 10_000_000 });

function setUp(raw: unknown, mesh: OverlayMesh | undefined = aMesh(), open: readonly OpenEvent[] = []) {
  const clock = new FakeClock();
  const seen: NodeEvent[] = [];
  const events = createEventLog({ clock, sink: (event) => void seen.push(event), open });
  const now: { raw: unknown; standing: MeshStanding | undefined; requested: number; fails: boolean } = {
    raw,
    standing: undefined,
    requested: 0,
    fails: false,
  };
  const watch = gatewayWatch({
    clock,
    events,
    wish: () => ({
      gateway: normaliseGateway(now.raw, { nodeType: "Node" }).gateway,
      mesh,
      uidOf: (name) => (name === "gw1" ? uidOf(2) : undefined),
    }),
    async ask() {
      now.requested += 1;
      if (now.fails) throw new Error("it went");
      return now.standing;
    },
  });
  watch.refresh();
  const { sessions: _sessions, ...state } = aMeshState();
  return {
    clock,
    watch,
    now,
    reported: () =>
      seen.splice(0).map(({ eventType, level, state, message }) => `${state} ${level} ${eventType}: ${message}`),
    details: () => seen[0]?.details,
    async sample(...paths: readonly Partial<PathState>[]) {
      now.standing = { ...state, paths: paths.map((path) => aPathState(path)) };
      await clock.advance(EVERY);
    },
  };
}

describe("round trips", () => {
  test("above the limit for long enough are reported with the gateway, and cleared when below", async () => {
    const rig = setUp({ latencyMonitors: [{ ...MONITOR, critical: true }] });
    await rig.sample({ rttMs: 250 });
    expect(rig.reported()).toEqual([]);
    await rig.sample({ rttMs: 250.4 });
    expect(rig.details()).toMatchObject({ gateway: "gw1", rttMs: 250.4, maxLatencyMs: 100, isCritical: true });
    expect(rig.reported()).toEqual([
      "EXCEEDED ERROR Gateway Latency Exceeded: The round trip to gateway gw1 takes 250 ms, more than 100 ms",
    ]);
    await rig.sample({ rttMs: 80 });
    expect(rig.reported()).toEqual([
      "CLEARED INFO Gateway Latency Exceeded: The round trip to gateway gw1 takes 80 ms again, no more than 100 ms",
    ]);
  });

  test("are those of the named path, or else the default one, and only while it is up", async () => {
    const raw = { latencyMonitors: [{ ...MONITOR, triggerCount: 1, path: "wan2" }], paths: [WAN2] };
    const rig = setUp(raw, aMesh({ paths: [...aMesh().paths, { ...PATH2, isDefault: false }] }));
    await rig.sample({ rttMs: 999 }, { id: "wan2", rttMs: 5 });
    await rig.sample({ rttMs: 5 }, { id: "wan2", rttMs: 999, state: "down" });
    expect(rig.reported()).toEqual([]);
    await rig.sample({ rttMs: 5 }, { id: "wan2", rttMs: 999 });
    expect(rig.reported()).toEqual([
      "EXCEEDED ERROR Gateway Latency Exceeded: The round trip to gateway gw1 by path wan2 takes 999 ms, more than 100 ms",
    ]);
    const other = setUp({ latencyMonitors: [{ ...MONITOR, triggerCount: 1 }] }, aMesh({ paths: [PATH2] }));
    await other.sample({ rttMs: 999 }, { id: "wan2", rttMs: 5 });
    expect(other.reported()).toEqual([]);
  });

  test("that are not monitored any more are cleared, and then not measured", async () => {
    const open = { level: "ERROR", message: "", details: {}, isAnnounced: true } as const;
    const object = "gw1 above 100 ms";
    const rig = setUp({}, aMesh(), [{ ...open, eventType: "Gateway Latency Exceeded", object }]);
    await rig.clock.advance(EVERY);
    expect(rig.reported()).toEqual([`CLEARED INFO Gateway Latency Exceeded: ${object} is no longer monitored`]);
    const { requested: requests } = rig.now;
    await rig.clock.advance(10 * EVERY);
    expect([rig.now.requested, rig.clock.pendingTimers]).toEqual([requests, 0]);
  });
});

describe("incoming traffic", () => {
  test("is reported when at the limit for two minutes, and cleared when below for two", async () => {
    const rig = setUp({}, SERVED);
    let bytesIn = 0;
    const at = async (mbps: number, samples: number): Promise<void> => {
      for (let i = 0; i < samples; i += 1) await rig.sample({ bytesIn: (bytesIn += mbps * 125_000 * 20) });
    };
    await at(9.8, 6);
    expect(rig.reported()).toEqual([]);
    await at(9.8, 1);
    expect(rig.details()).toMatchObject({ mbps: 9.8, maxmbps: 10 });
    expect(rig.reported()).toEqual([
      "EXCEEDED ERROR Gateway Ingress Limit Reached: Ingress over tunnels is at its limit of 10 Mbit/s",
    ]);
    await at(9.2, 10);
    expect(rig.reported()).toEqual([]);
    await at(2, 6);
    expect(rig.reported()).toEqual([
      "CLEARED INFO Gateway Ingress Limit Reached: Ingress over tunnels is no longer at its limit",
    ]);
  });

  test("is not evaluated while the overlay does not answer", async () => {
    const rig = setUp({}, SERVED);
    await rig.sample({ bytesIn: 0 });
    rig.now.fails = true;
    await rig.clock.advance(EVERY);
    rig.now.fails = false;
    await rig.sample({ bytesIn: 1e12 });
    expect([rig.reported(), rig.now.requested]).toEqual([[], 3]);
  });
});

test("polls nothing without a monitor, and nothing after the end", async () => {
  const idle = setUp({}, aMesh({ ingressBitsPerSecond: 5 }));
  await idle.clock.advance(10 * EVERY);
  expect([idle.now.requested, idle.clock.pendingTimers]).toEqual([0, 0]);
  const rig = setUp({ latencyMonitors: [MONITOR] });
  rig.watch.close();
  await rig.clock.advance(10 * EVERY);
  expect(rig.now.requested).toBe(0);
});

const WAN2 = { id: "wan2", node: "gw1", host: "192.0.2.7", port: 8443 };
const PATH2 = { gateway: uidOf(2), id: "wan2", host: "192.0.2.7", port: 8443, isDefault: true };
