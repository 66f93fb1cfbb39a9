import { describe, expect, test } from "vitest";
import type { MeshStanding } from "../../../../../src/host/overlay/client.ts";
import { createEventLog, type OpenEvent } from "../../../../../src/agent/telemetry/events.ts";
import { meshEvents } from "../../../../../src/agent/telemetry/conditions/mesh-events.ts";
import type { ClientState, MeshEvent, PathState } from "../../../../../src/protocol/overlay/mesh.ts";
import type { NodeEvent } from "../../../../../src/protocol/documents/telemetry.ts";
import { FakeClock } from "../../../../support/fake-clock.ts";
import { aMeshState, aPathState, uidOf } from "../../../../support/overlay/mesh.ts";

const MINUTE = 60_000;

function setUp(open: readonly OpenEvent[] = []) {
  const clock = new FakeClock();
  const seen: NodeEvent[] = [];
  const events = createEventLog({ clock, sink: (event) => void seen.push(event), open });
  const names = new Map([
    [uidOf(2), "gw1"],
    [uidOf(3), "gw2"],
    [uidOf(4), "branch"],
  ]);
  const gateways = new Set([uidOf(2), uidOf(3)]);
  const surroundings = { isWanted: true, isOnline: true };
  const mesh = meshEvents({
    clock,
    events,
    nameOf: (uid) => names.get(uid),
    isGateway: (uid) => gateways.has(uid),
    isWanted: () => surroundings.isWanted,
    isOnline: () => surroundings.isOnline,
  });
  return {
    clock,
    mesh,
    names,
    gateways,
    surroundings,
    seen,
    /** Returns the events since the last call. */
    reported: () =>
      seen.splice(0).map(({ eventType, level, state, message }) => `${state} ${level} ${eventType}: ${message}`),
    stand: (...paths: readonly Partial<PathState>[]) => mesh.stands(standing(paths)),
  };
}

function standing(paths: readonly Partial<PathState>[], clients: readonly ClientState[] = []): MeshStanding {
  const { sessions: _sessions, ...state } = aMeshState();
  return { ...state, paths: paths.map((path) => aPathState(path)), clients: [...clients] };
}

const event = (kind: MeshEvent["kind"], more: Partial<MeshEvent> = {}): MeshEvent => ({
  kind,
  at: 1,
  gateway: uidOf(2),
  path: "",
  cause: "three probes went unanswered",
  ...more,
});
const UP = { state: "up" } as const;
const DOWN = { state: "down", remote: undefined, reason: "reset by the peer", carries: false } as const;
const GW2 = { gateway: uidOf(3) } as const;
const LOST = "EXCEEDED WARNING Data Plane Disruption: Node gw1 via Internet path abnormally disconnected";
const BACK = "CLEARED INFO Data Plane Disruption: Node gw1 via Internet path is connected again";
const NONE = "EXCEEDED WARNING All Gateways Disconnected: Number of connected gateways has dropped to zero";
const SOME = "CLEARED INFO All Gateways Disconnected: Number of connected gateways is no longer zero";

describe("a path", () => {
  test("that is lost is reported once, and again ten seconds after its return, with the duration", async () => {
    const rig = setUp();
    rig.stand(UP, { ...GW2, ...UP });
    await rig.clock.advance(MINUTE);
    expect(rig.reported()).toEqual([]);
    rig.stand(DOWN, { ...GW2, ...UP });
    expect(rig.seen[0]?.details).toMatchObject({
      object: "gw1",
      peer: "gw1",
      path: "default",
      reason: "reset by the peer",
      endpoint: "192.0.2.1:8443",
    });
    expect(rig.reported()).toEqual([LOST]);
    rig.stand({ ...DOWN, attempts: 2 }, { ...GW2, ...UP });
    await rig.clock.advance(5000);
    rig.mesh.happened([event("path-back", { durationMs: 4200, cause: "the network changed" })]);
    rig.stand(UP, { ...GW2, ...UP });
    await rig.clock.advance(9000);
    expect(rig.reported()).toEqual([]);
    await rig.clock.advance(2000);
    expect(rig.seen[0]?.details).toMatchObject({ durationMs: 4200, cause: "the network changed", peer: "gw1" });
    expect(rig.seen[0]?.details).not.toHaveProperty("reason");
    expect(rig.reported()).toEqual([BACK]);
    rig.stand(DOWN, { ...GW2, ...UP });
    await rig.clock.advance(7000);
    rig.stand(UP, { ...GW2, ...UP });
    await rig.clock.advance(10_000);
    expect(rig.seen[1]?.details).toMatchObject({ object: "gw1", durationMs: 7000 });
    expect(rig.seen[1]?.details).not.toHaveProperty("cause");
  });

  test("that flaps is one disruption, measured from its first loss if nothing else measured it", async () => {
    const rig = setUp();
    rig.stand(UP, { ...GW2, ...UP });
    await rig.clock.advance(MINUTE);
    for (const state of [DOWN, UP, DOWN, UP]) {
      rig.stand(state, { ...GW2, ...UP });
      await rig.clock.advance(3000);
    }
    await rig.clock.advance(8000);
    expect(rig.seen.at(-1)?.details).toMatchObject({ durationMs: 9000 });
    expect(rig.reported()).toEqual([LOST, BACK]);
  });

  test("that was lost again is not measured by a recovery from before it was reported", async () => {
    const rig = setUp();
    rig.stand(UP, { ...GW2, ...UP });
    rig.stand(DOWN, { ...GW2, ...UP });
    rig.mesh.happened([event("path-back", { durationMs: 4200, cause: "the network changed" })]);
    rig.stand(UP, { ...GW2, ...UP });
    await rig.clock.advance(MINUTE);
    rig.stand(DOWN, { ...GW2, ...UP });
    await rig.clock.advance(7000);
    rig.stand(UP, { ...GW2, ...UP });
    await rig.clock.advance(10_000);
    expect(rig.seen.at(-1)?.details).toMatchObject({ object: "gw1", durationMs: 7000 });
    expect(rig.seen.at(-1)?.details).not.toHaveProperty("cause");
    expect(rig.reported()).toEqual([LOST, BACK]);
  });

  test("with a name is reported by it", async () => {
    const rig = setUp();
    rig.stand({ ...UP, id: "wan2" }, { ...GW2, ...UP });
    await rig.clock.advance(MINUTE);
    rig.stand({ ...DOWN, id: "wan2" }, { ...GW2, ...UP });
    expect(rig.seen[0]?.details).toMatchObject({ object: "gw1/wan2", path: "wan2" });
    expect(rig.reported()).toEqual([
      "EXCEEDED WARNING Data Plane Disruption: Node gw1 via path wan2 abnormally disconnected",
    ]);
  });

  test("that never came up is reported after a minute, with the reason", async () => {
    const rig = setUp();
    await rig.clock.advance(MINUTE);
    rig.stand({ state: "connecting", reason: "connection refused" }, { ...GW2, ...UP });
    await rig.clock.advance(MINUTE - 1);
    expect(rig.reported()).toEqual([]);
    await rig.clock.advance(1);
    expect(rig.reported()).toEqual([
      "EXCEEDED WARNING Data Plane Disruption: Node gw1 via Internet path cannot be connected: connection refused",
    ]);
  });

  test("that is not configured any more is no disruption", async () => {
    const rig = setUp();
    rig.stand(UP, { ...GW2, ...UP });
    await rig.clock.advance(MINUTE);
    rig.stand(DOWN, { ...GW2, ...UP });
    rig.reported();
    rig.stand({ ...GW2, ...UP });
    expect(rig.reported()).toEqual(["CLEARED INFO Data Plane Disruption: The path to gw1 is no longer in use"]);
  });
});

describe("all paths together", () => {
  test("are reported when the last one is lost and when the first one is back", async () => {
    const rig = setUp();
    rig.stand(UP, { ...GW2, ...UP });
    await rig.clock.advance(MINUTE);
    rig.stand(UP, { ...GW2, ...DOWN });
    rig.reported();
    rig.stand(DOWN, { ...GW2, ...DOWN });
    expect(rig.reported()).toEqual([LOST, NONE]);
    rig.stand(DOWN, { ...GW2, ...UP });
    await rig.clock.advance(10_000);
    expect(rig.reported()).toContain(SOME);
  });

  test("and the control plane are reported together, and again when either is back", async () => {
    const rig = setUp();
    rig.stand(UP);
    await rig.clock.advance(MINUTE);
    rig.surroundings.isOnline = false;
    rig.mesh.refresh();
    expect(rig.reported()).toEqual([]);
    rig.stand(DOWN);
    const both = "Data and Control Plane Disruption: Data and Control plane connection";
    expect(rig.reported()).toEqual([LOST, NONE, `EXCEEDED ERROR ${both} is down`]);
    rig.surroundings.isOnline = true;
    rig.mesh.refresh();
    await rig.clock.advance(10_000);
    expect(rig.reported()).toEqual([`CLEARED INFO ${both} is up`]);
  });

  test("are lost with the overlay, unless it is back within ten seconds or not needed", async () => {
    const rig = setUp();
    rig.stand(UP);
    await rig.clock.advance(MINUTE);
    rig.mesh.stands(undefined);
    await rig.clock.advance(9000);
    rig.stand(UP);
    await rig.clock.advance(MINUTE);
    expect(rig.reported()).toEqual([]);
    rig.mesh.stands(undefined);
    await rig.clock.advance(10_000);
    expect(rig.seen[0]?.details).toMatchObject({ reason: "the overlay is not running" });
    expect(rig.reported()).toEqual([LOST, NONE]);
    rig.surroundings.isWanted = false;
    rig.mesh.stands(undefined);
    expect(rig.reported()).toEqual(["CLEARED INFO Data Plane Disruption: The path to gw1 is no longer in use"]);
    await rig.clock.advance(10_000);
    expect(rig.reported()).toEqual([SOME]);
  });

  test("that lead to this node are reported when the last node is disconnected", async () => {
    const rig = setUp();
    const client = (state: "up" | "down"): ClientState => ({
      peer: uidOf(4),
      state,
      since: 1,
      sessions: 1,
      bytesIn: 0,
      bytesOut: 0,
    });
    rig.mesh.stands(standing([], [client("up")]));
    await rig.clock.advance(MINUTE);
    rig.mesh.stands(standing([], [client("down")]));
    rig.mesh.stands(standing([], [client("up")]));
    await rig.clock.advance(10_000);
    expect(rig.reported()).toEqual([
      "EXCEEDED WARNING All Peers Disconnected: Number of connected peers has dropped to zero",
      "CLEARED WARNING All Peers Disconnected: Number of connected peers is no longer zero",
    ]);
  });
});

describe("in the first minute and at the end", () => {
  test("reports nothing at first, and then what is still so", async () => {
    const rig = setUp();
    rig.stand(UP, { ...GW2, ...UP });
    rig.stand(DOWN, { ...GW2, ...DOWN });
    await rig.clock.advance(5000);
    rig.stand(DOWN, { ...GW2, ...UP });
    rig.mesh.happened([event("moved", { from: { gateway: uidOf(3), path: "" } })]);
    await rig.clock.advance(MINUTE - 5001);
    expect(rig.reported()).toEqual([]);
    await rig.clock.advance(1);
    expect(rig.reported()).toEqual([LOST]);
  });

  test("reports what ended a loss, and what left the domain", async () => {
    const rig = setUp();
    rig.stand(UP, { ...GW2, ...UP });
    rig.mesh.happened([event("moved", { ...GW2, from: { gateway: uidOf(2), path: "" }, durationMs: 1500 })]);
    expect(rig.reported()).toEqual([
      "UNKNOWN INFO Data Plane Failover: Traffic goes by gw2 instead of gw1 in 1500 ms: three probes went unanswered",
    ]);
    rig.gateways.delete(uidOf(2));
    rig.mesh.happened([event("gateway-removed", { cause: "the document" })]);
    expect(rig.reported()).toEqual(["UNKNOWN WARNING Data Plane Disruption: Gateway gw1 removed from the domain"]);
  });

  test("clears what an earlier run left open once it is well, and not before", async () => {
    const earlier = { level: "WARNING", message: "", details: {}, isAnnounced: true } as const;
    const rig = setUp([
      { ...earlier, eventType: "Data Plane Disruption", object: "gw1" },
      { ...earlier, eventType: "Data Plane Disruption", object: "gw2" },
      { ...earlier, eventType: "Data Plane Disruption", object: "forgotten" },
      { ...earlier, eventType: "Network Error", object: "eth0" },
    ]);
    rig.stand(UP, { ...GW2, ...DOWN });
    await rig.clock.advance(2 * MINUTE);
    const reported = rig.reported();
    expect(reported).toHaveLength(2);
    expect(reported[0]).toMatch(/^CLEARED INFO Data Plane Disruption: Cleared/);
    expect(reported[1]).toBe("CLEARED INFO Data Plane Disruption: The path to forgotten is no longer in use");
  });

  test("keeps what an earlier run left open until the overlay is known", async () => {
    const earlier = { level: "WARNING", message: "", details: {}, isAnnounced: true } as const;
    const rig = setUp([
      { ...earlier, eventType: "Data Plane Disruption", object: "gw1" },
      { ...earlier, eventType: "All Gateways Disconnected", object: "gateways" },
    ]);
    await rig.clock.advance(30_000);
    rig.stand(DOWN);
    await rig.clock.advance(2 * MINUTE);
    expect(rig.reported()).toEqual([]);
    expect(rig.clock.pendingTimers).toBe(0);
  });

  test("clears after the first minute what an earlier run left open if there is no path", async () => {
    const rig = setUp([
      {
        eventType: "Data Plane Disruption",
        object: "gw1",
        level: "WARNING",
        message: "",
        details: {},
        isAnnounced: true,
      },
    ]);
    await rig.clock.advance(MINUTE - 1);
    expect(rig.reported()).toEqual([]);
    await rig.clock.advance(1);
    expect(rig.reported()).toEqual(["CLEARED INFO Data Plane Disruption: The path to gw1 is no longer in use"]);
  });

  test("reports nothing that was closed on purpose", async () => {
    const rig = setUp();
    rig.stand(UP);
    await rig.clock.advance(MINUTE);
    rig.mesh.close();
    rig.stand(DOWN);
    rig.mesh.stands(undefined);
    rig.mesh.happened([event("moved")]);
    await rig.clock.advance(MINUTE);
    expect(rig.reported()).toEqual([]);
  });
});

describe("a disruption", () => {
  test.each([
    [
      event("moved", { ...GW2, from: { gateway: uidOf(2), path: "wan2" }, durationMs: 812.4 }),
      "UNKNOWN INFO Data Plane Failover: Traffic goes by gw2 instead of gw1/wan2 in 812 ms: three probes went unanswered",
      { to: "gw2", from: "gw1/wan2", durationMs: 812, cause: "three probes went unanswered" },
    ],
    [
      event("moved"),
      "UNKNOWN INFO Data Plane Failover: Traffic goes by gw1: three probes went unanswered",
      { to: "gw1" },
    ],
    [
      event("session-back", { peer: uidOf(4), durationMs: 99 }),
      "UNKNOWN INFO Data Plane Failover: Node branch is reached again via gw1 Internet path after 99 ms: three probes went unanswered",
      { peer: "branch", durationMs: 99 },
    ],
  ])("has its cause and duration: %#", async (happened, message, details) => {
    const rig = setUp();
    await rig.clock.advance(MINUTE);
    rig.mesh.happened([happened]);
    expect(rig.seen[0]?.details).toMatchObject(details);
    expect(rig.reported()).toEqual([message]);
  });

  test("to a gateway that left the domain has its former name, and is not reported if merely not dialled", async () => {
    const rig = setUp();
    rig.stand(UP, { ...GW2, ...UP });
    await rig.clock.advance(MINUTE);
    rig.mesh.happened([event("gateway-removed", { ...GW2, cause: "the document" })]);
    expect(rig.reported()).toEqual([]);
    rig.gateways.delete(uidOf(3));
    rig.mesh.happened([event("gateway-removed", { ...GW2, cause: "the document" })]);
    expect(rig.reported()).toEqual(["UNKNOWN WARNING Data Plane Disruption: Gateway gw2 removed from the domain"]);
    rig.names.delete(uidOf(2));
    rig.gateways.delete(uidOf(2));
    rig.mesh.happened([event("gateway-removed", { cause: "the document" })]);
    rig.stand({ ...GW2, ...UP });
    expect(rig.reported()).toEqual(["UNKNOWN WARNING Data Plane Disruption: Gateway gw1 removed from the domain"]);
  });

  test("to clients is not reported", async () => {
    const rig = setUp();
    await rig.clock.advance(MINUTE);
    rig.mesh.happened([event("client-lost"), event("client-back"), event("path-lost"), event("session-lost")]);
    expect(rig.reported()).toEqual([]);
  });
});
