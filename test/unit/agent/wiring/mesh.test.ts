import { DatabaseSync } from "node:sqlite";
import { pino } from "pino";
import { expect, test } from "vitest";
import { hopWish, meshMetrics, openMesh } from "../../../../src/agent/wiring/mesh.ts";
import { createEventLog } from "../../../../src/agent/telemetry/events.ts";
import { Spool, spoolMigration } from "../../../../src/agent/telemetry/spool.ts";
import type { OverlayStatus, OverlayView } from "../../../../src/host/overlay/client.ts";
import type { Config } from "../../../../src/protocol/documents/documents.ts";
import type { MeshState, RttBucket } from "../../../../src/protocol/overlay/mesh.ts";
import { normaliseGateway } from "../../../../src/protocol/sections/gateway/gateway.ts";
import type { NodeEvent } from "../../../../src/protocol/documents/telemetry.ts";
import { FakeClock, settle } from "../../../support/fake-clock.ts";
import { aDomain } from "../../../support/overlay/gateway-model.ts";
import { aMesh, aMeshState, aPathState, aPeer, uidOf } from "../../../support/overlay/mesh.ts";

const forever = new AbortController().signal;
const EMPTY = { services: new Map(), listeners: new Map(), states: new Map(), health: new Map() };
const BUCKET: RttBucket = {
  gateway: uidOf(2),
  path: "",
  time: 60_000,
  numRtt: 3,
  answered: 3,
  minRtt: 1,
  maxRtt: 2,
  meanRtt: 1.5,
  stdRtt: 0.5,
};
const hub = { count: 1, host: "10.0.0.1", "Loss%": 0, Snt: 3, Avg: 1, Best: 1, Wrst: 1 };

function setUp(config: Config = {}, capabilities = "CapEff:\t0000000000002000\n") {
  const clock = new FakeClock();
  const sql = new DatabaseSync(":memory:");
  sql.exec(spoolMigration);
  const spool = new Spool(sql, () => undefined);
  const seen: NodeEvent[] = [];
  const events = createEventLog({ clock, sink: (event) => void seen.push(event) });
  const now: { view: OverlayView; status: OverlayStatus; state: MeshState | undefined; config: Config } = {
    view: EMPTY,
    status: { state: "up", since: 1 },
    state: undefined,
    config,
  };
  const counts = { records: 0, changed: 0, ran: 0 };
  const mesh = openMesh({
    settings: { profile: "appliance" },
    clock,
    log: pino({ level: "silent" }),
    reader: { read: () => capabilities },
    exec: {
      run() {
        counts.ran += 1;
        const stdout = JSON.stringify({ report: { hubs: [hub] } });
        return Promise.resolve({ exitCode: 0, signal: undefined, stdout, stderr: "", truncated: false });
      },
    },
    events,
    spool,
    documents: { current: {} },
    domain: () => aDomain(),
    config: () => now.config,
    isOnline: () => true,
    overlay: () => ({ status: () => now.status, view: now.view, mesh: () => Promise.resolve(now.state) }),
    onRecords: () => void (counts.records += 1),
    onChanged: () => void (counts.changed += 1),
    lookUp: (ip) => Promise.resolve(`${ip}.example.org`),
  });
  return {
    clock,
    mesh,
    now,
    counts,
    seen,
    records: () => spool.batch("gateway-details")?.records ?? [],
    /** Sets the overlay's mesh and its state. */
    stand(state: Partial<MeshState> = {}): void {
      const all = { ...aMeshState(), ...state };
      const { sessions: _sessions, ...standing } = all;
      now.state = all;
      now.view = { ...EMPTY, mesh: aMesh(), standing };
      mesh.notices.onMesh(standing);
    },
  };
}

test("a node without a path to others reports nothing, and has only the timer of its start", async () => {
  const { mesh, clock, counts } = setUp();
  mesh.refresh();
  expect([mesh.facts(), await mesh.sample(forever), mesh.dataPlane()]).toEqual([
    {},
    {},
    { state: "none", paths: 0, up: 0 },
  ]);
  await clock.advance(60_000);
  expect([clock.pendingTimers, counts]).toEqual([0, { records: 0, changed: 0, ran: 0 }]);
});

test("the shadow and the status name the path in use, and subscribers get changes once a second", async () => {
  const rig = setUp();
  rig.stand();
  rig.stand({ paths: [aPathState({ since: 5500, reason: "the preferred path is up" })] });
  await rig.clock.advance(1000);
  expect(rig.counts.changed).toBe(1);
  expect(rig.mesh.facts()).toEqual({
    "gateway.status": "up",
    "gateway.paths": 1,
    "gateway.paths.up": 1,
    "gateway.carrier": "gw1",
    "gateway.carrier.since": 5,
  });
  expect(rig.mesh.dataPlane()).toEqual({
    state: "up",
    paths: 1,
    up: 1,
    carrier: { gateway: "gw1", path: "", since: 5500, reason: "the preferred path is up" },
  });
  rig.stand({ paths: [aPathState({ since: 5500, reason: "the preferred path is up", bytesIn: 99 })] });
  await rig.clock.advance(1000);
  expect(rig.counts.changed).toBe(1);
  rig.stand({ paths: [aPathState({ state: "down", carries: false })] });
  await rig.clock.advance(1000);
  expect(rig.counts.changed).toBe(2);
  expect(rig.mesh.facts()).toEqual({ "gateway.status": "down", "gateway.paths": 1, "gateway.paths.up": 0 });
});

test("stores minutes of round trips as records, with the hops found and their names", async () => {
  const rig = setUp({ gateway: { enabled: false, monitorHopsMode: "always" } });
  rig.stand();
  rig.mesh.refresh();
  await rig.clock.advance(1000);
  rig.mesh.notices.onRtt([BUCKET, { ...BUCKET, answered: 0 }]);
  await settle();
  await rig.clock.advance(60_000);
  rig.mesh.notices.onRtt([{ ...BUCKET, time: 120_000 }]);
  expect(rig.records()).toMatchObject([
    { time: 60_000, node: "gw1", numRtt: 3, hops: [{ hop: 1, ip: "10.0.0.1", fqdn: "10.0.0.1" }] },
    { time: 120_000, hops: [{ fqdn: "10.0.0.1.example.org", numRtt: 9 }] },
  ]);
  expect(rig.counts.records).toBe(2);
  rig.mesh.notices.onRtt([{ ...BUCKET, answered: 0 }]);
  expect(rig.counts.records).toBe(2);
});

test("does not trace without the capability, and reports that once", async () => {
  const rig = setUp({ gateway: { monitorHopsMode: "always" } }, "CapEff:\t0000000000001fff\n");
  rig.stand();
  rig.mesh.refresh();
  await rig.clock.advance(120_000);
  expect(rig.counts.ran).toBe(0);
  expect(rig.seen.map(({ eventType, level }) => `${level} ${eventType}`)).toEqual(["WARNING Gateway Hop Monitoring"]);
});

test("metrics count tunnels and their bytes, from the second reading on", async () => {
  const rig = setUp();
  rig.stand();
  expect(await rig.mesh.sample(forever)).toEqual({ "gw.available": 1, "gw.connected": 1 });
  await rig.clock.advance(60_000);
  rig.stand({ paths: [aPathState({ bytesIn: 10 + 7500, bytesOut: 20 + 15_000, state: "down" })] });
  expect(await rig.mesh.sample(forever)).toEqual({
    "gw.available": 1,
    "gw.connected": 0,
    "gw.rxBps": 1000,
    "gw.txBps": 2000,
  });
  rig.now.state = undefined;
  expect(await rig.mesh.sample(forever)).toEqual({});
  const standing = aMeshState();
  expect(meshMetrics({ standing, at: 5 }, { standing, at: 5 })).not.toHaveProperty("gw.rxBps");
});

test("reports nothing after the end", async () => {
  const rig = setUp();
  rig.stand();
  rig.mesh.close();
  rig.stand({ paths: [aPathState({ state: "down" })] });
  await rig.clock.advance(120_000);
  expect([rig.seen, rig.counts.changed]).toEqual([[], 0]);
});

const wishOf = (raw: unknown, asks = false) => {
  const gw1 = aPeer(2, "gw1");
  const asking = gw1.gateway === undefined ? gw1 : { ...gw1, gateway: { ...gw1.gateway, requestsHops: true as const } };
  const { gateway } = normaliseGateway(raw, { nodeType: "Node" });
  return hopWish(gateway, aDomain([asks ? asking : gw1]), { mesh: aMesh(), standing: aMeshState() });
};

test.each([
  ["never", false, 0],
  ["never", true, 0],
  ["peer-request", false, 0],
  ["peer-request", true, 1],
  ["always", false, 1],
] as const)(
  "in the mode %s, requested by the gateway: %s, traces this number of paths: %i",
  (monitorHopsMode, asks, count) => {
    expect(wishOf({ monitorHopsMode }, asks).targets).toHaveLength(count);
  },
);

test("traces to the address of the tunnel, by the protocol of the gateway", () => {
  const raw = {
    monitorHopsMode: "always",
    monitorHopsInterval: 30,
    monitorHopsSynPayload: 100,
    monitorHopsOverrides: [{ node: "gw1", protocol: "icmp" }],
  };
  const target = { gateway: uidOf(2), path: "", ip: "192.0.2.1", port: 8443 };
  expect(wishOf({ ...raw, monitorHopsOverrides: [] })).toEqual({
    intervalMs: 30_000,
    targets: [{ ...target, protocol: "syn", payload: 100 }],
  });
  expect(wishOf(raw).targets).toEqual([{ ...target, protocol: "icmp", payload: 56 }]);
});
