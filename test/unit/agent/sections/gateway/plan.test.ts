import { describe, expect, test } from "vitest";
import { describeGatewayStep } from "../../../../../src/agent/sections/gateway/describe.ts";
import { planGateway, type GatewayActual, waitingGateway } from "../../../../../src/agent/sections/gateway/plan.ts";
import { MAX_DETAIL } from "../../../../../src/protocol/documents/reconcile.ts";
import type { DomainPeer } from "../../../../../src/protocol/sections/gateway/domain-items.ts";
import type { OverlayMesh } from "../../../../../src/protocol/overlay/mesh.ts";
import { normaliseGateway } from "../../../../../src/protocol/sections/gateway/gateway.ts";
import { aDomain, aGatewayActual } from "../../../../support/overlay/gateway-model.ts";
import { aMeshState, aPeer, keyOf, uidOf } from "../../../../support/overlay/mesh.ts";

const SERVER = { enabled: true, type: "public", host: "192.0.2.9", port: 8443 };
const peers = [aPeer(2, "gw1"), aPeer(4, "branch")];
const grant = { source: uidOf(4), service: "web", protocol: "tcp" } as const;
const desired = (raw: unknown) => normaliseGateway(raw, { nodeType: "Node" }).gateway;

/** Returns the overlay's mesh of an applied section. */
function meshOf(raw: unknown, actual: GatewayActual): OverlayMesh | undefined {
  return planGateway(desired(raw), actual).at(-1)?.mesh;
}

/** Returns the steps from one section and domain to another, as text. */
function between(
  from: readonly [unknown, Partial<GatewayActual>],
  to: readonly [unknown, Partial<GatewayActual>],
): readonly string[] {
  const mesh = meshOf(from[0], aGatewayActual(from[1]));
  const actual = aGatewayActual({ ...to[1], mesh });
  const steps = planGateway(desired(to[0]), actual);
  const after = steps.at(-1)?.mesh;
  if (steps.length > 0) expect(planGateway(desired(to[0]), { ...actual, mesh: after })).toEqual([]);
  return steps.map((step) => `${step.kind} ${describeGatewayStep(step, actual)}`);
}

describe("the steps", () => {
  const plain = { domain: aDomain(peers, []) };
  const without = (...gone: readonly string[]) =>
    aDomain(
      peers.filter(({ name }) => !gone.includes(name)),
      [],
    );
  const having = (name: string, more: Partial<DomainPeer>) =>
    aDomain(
      peers.map((peer) => (peer.name === name ? { ...peer, ...more } : peer)),
      [],
    );

  test("to the same table are none", () => {
    expect(between([{}, plain], [undefined, plain])).toEqual([]);
    expect(between([undefined, { isActive: false }], [undefined, { domain: undefined }])).toEqual([]);
  });

  test("from an empty table name the gateway, its path, the peers and their grants", () => {
    expect(between([undefined, { isActive: false }], [undefined, { domain: aDomain(peers, [grant]) }])).toEqual([
      "add peer gw1",
      "add peer branch",
      "add gateway gw1 at gw1.example.net:8443",
      "add branch may use web tcp",
    ]);
  });

  test("to an empty table say that flows end", () => {
    expect(between([undefined, plain], [undefined, { ...plain, isActive: false }])).toEqual([
      "remove peer gw1, ends its flows",
      "remove peer branch, ends its flows",
      "remove gateway gw1 at gw1.example.net:8443, ends the flows on it",
    ]);
  });

  const wan2 = { id: "wan2", node: "gw1", host: "192.0.2.7", port: 8443 };
  const table: readonly (readonly [string, unknown, unknown, Partial<GatewayActual>, readonly string[]])[] = [
    ["a peer that goes", {}, {}, { domain: without("branch") }, ["remove peer branch.example.org, ends its flows"]],
    [
      "a gateway that goes",
      {},
      {},
      { domain: without("gw1") },
      [
        "remove peer gw1.example.org, ends its flows",
        "remove gateway gw1.example.org at gw1.example.net:8443, ends the flows on it",
      ],
    ],
    [
      "another key",
      {},
      {},
      { domain: having("branch", { key: keyOf("z") }) },
      ["change peer branch: new key, ends its flows"],
    ],
    [
      "a peer that may dial",
      {},
      {},
      { domain: having("branch", { mayDial: true }) },
      ["change peer branch: may dial this gateway"],
    ],
    [
      "a gateway that moves",
      {},
      {},
      { domain: having("gw1", { gateway: { type: "hub", host: "192.0.2.8", port: 8443 } }) },
      ["change peer gw1: is a hub", "change gateway gw1: gw1.example.net:8443 → 192.0.2.8:8443, ends the flows on it"],
    ],
    [
      "a path more",
      {},
      { paths: [{ ...wan2, local: "10.0.0.2" }] },
      plain,
      ["add path wan2 to gateway gw1 at 192.0.2.7:8443 from 10.0.0.2, not the default"],
    ],
    [
      "a path that becomes the default",
      { paths: [wan2] },
      { paths: [{ ...wan2, default: true }] },
      plain,
      [
        "remove gateway gw1 at gw1.example.net:8443, ends the flows on it",
        "change path wan2 to gateway gw1: is the default",
      ],
    ],
    ["a server", {}, SERVER, plain, ["add gateway server on port 8443"]],
    ["no server", SERVER, {}, plain, ["remove gateway server on port 8443, ends the tunnels of its clients"]],
    [
      "another port",
      SERVER,
      { ...SERVER, port: 9443 },
      plain,
      ["change gateway server on port 9443: port 8443 → 9443"],
    ],
    [
      "fewer relays",
      SERVER,
      { ...SERVER, acls: [{ source: "gw1", dest: "branch" }] },
      plain,
      ["change gateway server on port 8443: relays every pair → 1 pairs, ends flows that it may no longer relay"],
    ],
    [
      "limits",
      { maxmbps: 10 },
      { maxmbps: 20, maxClientWriteMbps: 5 },
      plain,
      ["change limits: in 10 Mbit/s → 20 Mbit/s, out unlimited → 5 Mbit/s"],
    ],
    [
      "a static route",
      {},
      { routes: [{ route: "branch", dest: "gw1", metric: 1 }] },
      plain,
      ["add static routes: branch through gw1"],
    ],
    [
      "another thing that may be used",
      {},
      {},
      { domain: aDomain(peers, [{ ...grant, service: "10.0.0.1:80" }]) },
      ["add branch may use 10.0.0.1:80 tcp"],
    ],
  ];
  test.each(table)("to %s say what changes and whether flows end", (_, from, to, more, steps) => {
    expect(between([from, plain], [to, more])).toEqual(steps);
  });

  test("to fewer grants name those that end", () => {
    const more = [grant, { ...grant, service: "db" }];
    expect(between([{}, { domain: aDomain(peers, more) }], [{}, { domain: aDomain(peers, [grant]) }])).toEqual([
      "change branch may no longer use db tcp, ends its flows there",
    ]);
  });

  test("to a crowd are one for all peers and one for all grants", () => {
    const crowd = Array.from({ length: 80 }, (_, at) => aPeer(10 + at, `n${at}`, { key: keyOf("q") }));
    const grants = crowd.map(({ uid }) => ({ ...grant, source: uid }));
    const steps = between([{}, plain], [{}, { domain: aDomain([...peers, ...crowd], grants) }]);
    expect(steps).toEqual([
      "change peers: 2 → 82, ends the flows of removed peers and changed keys",
      "change grants: 0 → 80, ends flows that are no longer granted",
    ]);
    const many = Array.from({ length: 60 }, (_, at) => ({ ...grant, service: `service-with-a-long-name-${at}` }));
    const [one = ""] = between([{}, plain], [{}, { domain: aDomain(peers, many) }]);
    expect(one).toMatch(/ and 52 more$/);
    expect(one.length).toBeLessThan(MAX_DETAIL);
  });

  test("carry the whole table each, so that any of them is enough", () => {
    const steps = planGateway(desired(SERVER), aGatewayActual());
    expect(new Set(steps.map(({ mesh }) => mesh)).size).toBe(1);
    expect(new Set(steps.map(({ kind, subject }) => `${kind} ${subject}`)).size).toBe(steps.length);
  });
});

describe("an item without effect", () => {
  const codes = (raw: unknown, more: Partial<GatewayActual> = {}) =>
    waitingGateway(desired(raw), aGatewayActual(more)).map(({ path, code }) => `${path} ${code}`);

  test("is named by its path", () => {
    const raw = {
      ...SERVER,
      paths: [
        { id: "a", node: "nobody", host: "192.0.2.1", port: 1 },
        { id: "b", node: "branch", host: "192.0.2.1", port: 1 },
        { id: "c", node: "gw1", host: "192.0.2.1", port: 1, local: "10.9.9.9" },
        { id: "d", node: "gw1", host: "192.0.2.1", port: 1, local: "10.0.0.2" },
        { id: "e", node: "nobody", host: "192.0.2.1", port: 1, enabled: false },
      ],
      routes: [{ route: "nobody", dest: "gw1", metric: 1 }],
      acls: [{ source: "me", dest: "nowhere" }],
      latencyMonitors: [{ node: "gone", maxLatency: 5 }],
    };
    expect(codes(raw)).toEqual([
      "gateway.paths.a.node unknown-node",
      "gateway.paths.b.node not-a-gateway",
      "gateway.paths.c.local address-absent",
      "gateway.routes.route unknown-node",
      "gateway.acls.dest unknown-node",
      "gateway.latencyMonitors.node unknown-node",
    ]);
    expect(codes(raw, { isActive: false })).toEqual([]);
    expect(codes(raw, { domain: undefined })).toEqual([]);
  });

  test("is a cluster in the place of a node, which is distinguished from an unknown name", () => {
    const domain = aDomain(undefined, undefined, ["pair.example.org"]);
    const raw = { ...SERVER, routes: [{ route: "pair.example.org", dest: "gw1", metric: 1 }] };
    expect(codes(raw, { domain })).toEqual(["gateway.routes.route unsupported"]);
  });

  test("is a monitor without anything to measure, and an override of an unknown node", () => {
    const path = { host: "192.0.2.1", port: 1 };
    const raw = {
      paths: [
        { id: "a", node: "gw1", ...path },
        { id: "off", node: "gw1", enabled: false, ...path },
      ],
      latencyMonitors: [
        { node: "gw1", maxLatency: 5 },
        { node: "gw1", path: "a", maxLatency: 5 },
        { node: "gw2", path: "a", maxLatency: 5 },
        { node: "gw1", path: "off", maxLatency: 5 },
        { node: "branch", maxLatency: 5 },
      ],
      monitorHopsOverrides: [{ node: "nobody", protocol: "icmp" }],
    };
    expect(codes(raw)).toEqual([
      "gateway.monitorHopsOverrides.node unknown-node",
      "gateway.latencyMonitors.path no-path",
      "gateway.latencyMonitors.path no-path",
      "gateway.latencyMonitors.node not-a-gateway",
    ]);
  });

  test("is a server that does not listen, with the reason", () => {
    const { sessions: _sessions, ...state } = aMeshState();
    const server = { ...state.server, state: "failed", reason: "address-in-use", message: "port 8443" } as const;
    const actual = aGatewayActual({ standing: { ...state, server } });
    const mesh = meshOf(SERVER, actual);
    const [issue] = waitingGateway(desired(SERVER), { ...actual, mesh });
    expect(issue).toEqual({
      path: "gateway.port",
      code: "address-in-use",
      message: "gateway.port: the gateway server does not listen on port 8443 (address-in-use: port 8443)",
    });
    expect(waitingGateway(desired({}), { ...actual, mesh: meshOf({}, actual) })).toEqual([]);
  });

  test("is an invalid peer or grant of the document, and the rest works", () => {
    const domain = aDomain([aPeer(2, "gw1"), { ...aPeer(3, "gw2"), key: "short" }], [{ ...grant, service: "" }]);
    expect(codes({}, { domain })).toEqual([
      "gateway.domain.peers.1 invalid-item",
      "gateway.domain.grants.0 invalid-item",
    ]);
    expect(meshOf({}, aGatewayActual({ domain }))?.paths).toHaveLength(1);
  });
});
