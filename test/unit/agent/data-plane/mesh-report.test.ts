import { describe, expect, it } from "vitest";
import {
  carrierOf,
  dataPlaneState,
  gatewaysReport,
  namesOf,
  peersReport,
  type MeshReading,
} from "../../../../src/agent/data-plane/mesh-report.ts";
import type { DomainGateway, DomainPeer } from "../../../../src/protocol/sections/gateway/domain-items.ts";
import { GatewaysReport, PeersReport } from "../../../../src/protocol/local/mesh.ts";
import type {
  ClientState,
  MeshState,
  OverlayMesh,
  PathState,
  PeerSessionState,
} from "../../../../src/protocol/overlay/mesh.ts";
import { aDomain } from "../../../support/overlay/gateway-model.ts";
import { aMesh, aMeshState, aPathState, aPeer, keyOf, uidOf } from "../../../support/overlay/mesh.ts";

const PATHS: OverlayMesh["paths"] = [
  { gateway: uidOf(2), id: "", host: "gw1.example.net", port: 8443, isDefault: true },
  { gateway: uidOf(2), id: "wan2", host: "192.0.2.7", port: 8443, local: "10.0.0.2", isDefault: false },
  { gateway: uidOf(3), id: "", host: "gw2.example.net", port: 8443, isDefault: true },
];
const MESH = aMesh({
  peers: [2, 3, 4].map((n) => ({ uid: uidOf(n), fqdn: `n${n}.example.org`, key: keyOf("b") })),
  paths: PATHS,
  grants: [{ source: uidOf(4), service: "web", protocol: "tcp" }],
});
const CLIENT: ClientState = { peer: uidOf(4), state: "up", since: 500, sessions: 1, bytesIn: 1, bytesOut: 2 };
const SESSION: PeerSessionState = {
  peer: uidOf(4),
  role: "source",
  gateway: uidOf(2),
  path: "",
  since: 700,
  activeFlows: 1,
  flows: 3,
  bytesIn: 5,
  bytesOut: 6,
};

function reading(state: Partial<MeshState> | undefined, more: Partial<MeshReading> = {}): MeshReading {
  return {
    overlay: { state: "up", since: 1, pid: 7 },
    domain: aDomain(),
    mesh: MESH,
    state: state === undefined ? undefined : { ...aMeshState(), ...state },
    why: [],
    ...more,
  };
}

const paths = (...states: readonly Partial<PathState>[]) => ({ paths: states.map((state) => aPathState(state)) });
const gateways = (...args: Parameters<typeof reading>) => GatewaysReport.parse(gatewaysReport(reading(...args)));
const peers = (...args: Parameters<typeof reading>) => PeersReport.parse(peersReport(reading(...args)));

describe("the data plane", () => {
  it.each([
    ["none", undefined, undefined],
    ["none", aMesh({ paths: [] }), paths()],
    ["unknown", MESH, undefined],
    ["down", MESH, paths({ state: "down" })],
    ["degraded", MESH, paths({}, { id: "wan2", state: "connecting" })],
    ["degraded", MESH, paths({})],
    ["up", MESH, paths({}, { id: "wan2" }, { gateway: uidOf(3) })],
  ] as const)("is %s according to the paths that this node initiates: %#", (state, mesh, standing) => {
    expect(dataPlaneState(mesh, standing)).toBe(state);
  });

  it("names the path that carries it while that is up", () => {
    const nameOf = namesOf(aDomain());
    const carries = paths({ carries: false }, { gateway: uidOf(3), since: 9, reason: "gw1 is slow" });
    expect(carrierOf(carries, nameOf)).toEqual({ gateway: "gw2", path: "", since: 9, reason: "gw1 is slow" });
    expect(carrierOf(paths({ state: "down" }), nameOf)).toBeUndefined();
    expect(carrierOf(undefined, nameOf)).toBeUndefined();
    expect(namesOf(undefined)("x")).toBe("x");
  });
});

describe("gateways", () => {
  it("are listed with each path as configured and as it is", () => {
    const report = gateways(
      paths({ rttMs: 3, loss: 0.05 }, { id: "wan2", state: "down", carries: false, reason: "refused" }),
    );
    expect(report).toMatchObject({
      domain: "example.org",
      dataPlane: "degraded",
      carrier: { gateway: "gw1", path: "" },
    });
    expect(report.gateways).toMatchObject([
      {
        uid: uidOf(2),
        name: "gw1",
        fqdn: "gw1.example.org",
        type: "public",
        paths: [
          { id: "", host: "gw1.example.net", state: "up", carries: true, rttMs: 3, loss: 0.05 },
          { id: "wan2", host: "192.0.2.7", local: "10.0.0.2", isDefault: false, state: "down", reason: "refused" },
        ],
      },
      { name: "gw2", paths: [{ state: "pending", carries: false }] },
    ]);
    expect(report.gateways[1]?.paths[0]).not.toHaveProperty("since");
  });

  it("report the mistakes of their section only", () => {
    const times = { since: 1, lastAttempt: 1 };
    const why = [
      { section: "gateway", item: "gateway.paths.x.node", code: "unknown-node", message: "who?", ...times },
      { section: "gateway", code: "overlay-older", message: "old", ...times },
      { section: "gateway", code: "E_RANGE", message: "notice", notice: true as const, ...times },
      { section: "services", code: "service-down", message: "other", ...times },
    ];
    expect(gateways({}, { why }).issues).toEqual([
      { path: "gateway.paths.x.node", code: "unknown-node", message: "who?" },
      { path: "gateway", code: "overlay-older", message: "old" },
    ]);
  });

  it("are none when there is nothing to dial, and the node's own is reported", () => {
    const mesh = aMesh({
      paths: [],
      server: { addresses: ["0.0.0.0"], port: 9443 },
      peers: [{ uid: uidOf(4), fqdn: "b.example.org", key: keyOf("b"), mayDial: true }],
    });
    const server = { ...aMeshState().server, state: "listening" as const, refused: { tls: 3 } };
    const report = gateways(
      { paths: [], server, clients: [CLIENT, { ...CLIENT, peer: uidOf(3), state: "down" }] },
      { mesh },
    );
    expect(report).toMatchObject({
      dataPlane: "none",
      gateways: [],
      server: { state: "listening", port: 9443, clients: 1, admitted: 1, refused: { tls: 3 } },
    });
    expect(gateways(undefined, { mesh }).server).toMatchObject({ state: "off", reason: "overlay-down", clients: 0 });
    expect(gateways({}).server).toBeUndefined();
  });

  it("are none without a document of the domain", () => {
    const report = gateways(undefined, { domain: undefined, mesh: undefined });
    expect(report).toMatchObject({ dataPlane: "none", gateways: [] });
    expect(report).not.toHaveProperty("domain");
  });
});

describe("peers", () => {
  const states = (...args: Parameters<typeof reading>) =>
    peers(...args).peers.map(({ name, state, since }) => `${name} ${state}${since === undefined ? "" : ` ${since}`}`);

  it("are connected by a tunnel or a session, reachable when a gateway is up, and else unreachable", () => {
    expect(states(paths({ since: 5 }, { gateway: uidOf(3), state: "down", since: 9 }))).toEqual([
      "branch reachable",
      "gw1 connected 5",
      "gw2 unreachable 9",
    ]);
    expect(states({ ...paths({ state: "down" }), sessions: [SESSION] })[0]).toBe("branch connected 700");
    expect(states({ paths: [], clients: [CLIENT] })[0]).toBe("branch connected 500");
    expect(states(paths({ state: "down" }))[0]).toBe("branch unreachable");
    expect(states(undefined)).toEqual(["branch unreachable", "gw1 unreachable", "gw2 unreachable"]);
  });

  it("that are gateways themselves are reachable only through gateways that have a tunnel to them", () => {
    const [gw1, gw2] = [aPeer(2, "gw1"), aPeer(3, "gw2")];
    const standing = paths({}, { gateway: uidOf(3), state: "down", since: 9 });
    const of = (own: DomainGateway["type"], other: DomainGateway["type"], more: Partial<OverlayMesh> = {}) => {
      const typed = (peer: DomainPeer, type: DomainGateway["type"]): DomainPeer => ({
        ...peer,
        gateway: { type, host: "192.0.2.1", port: 8443 },
      });
      const domain = aDomain([typed(gw1, own), typed(gw2, other)]);
      return states(standing, { domain, mesh: { ...MESH, ...more } })[1];
    };
    expect(of("public", "public")).toBe("gw2 unreachable 9");
    expect(of("private", "private")).toBe("gw2 unreachable 9");
    expect(of("hub", "public")).toBe("gw2 reachable 9");
    expect(of("public", "hub")).toBe("gw2 reachable 9");
    expect(of("public", "private")).toBe("gw2 reachable 9");
    const routes = [{ to: uidOf(3), via: uidOf(2), metric: 1 }];
    expect(of("public", "public", { routes })).toBe("gw2 reachable 9");
  });

  it("that the overlay does not know yet are unreachable", () => {
    expect(states(paths({}), { mesh: aMesh() })[0]).toBe("branch unreachable");
  });

  it("have their sessions with the gateway by name, the dialling side, and what they may use on this node", () => {
    const [branch, gw1] = peers({ ...paths({}), sessions: [SESSION], clients: [CLIENT] }).peers;
    expect(branch).toMatchObject({
      uid: uidOf(4),
      isGateway: false,
      sessions: [{ role: "source", gateway: "gw1", path: "", flows: 3 }],
      client: { state: "up", sessions: 1 },
      grants: [{ service: "web", protocol: "tcp" }],
    });
    expect(branch).not.toHaveProperty("moreGrants");
    expect(gw1).toMatchObject({ isGateway: true, mayDial: false, sessions: [], grants: [] });
    expect(gw1).not.toHaveProperty("client");
  });

  it("are listed with a bounded number of details", () => {
    const grants = Array.from({ length: 70 }, (_, at) => ({
      source: uidOf(4),
      service: `s${at}`,
      protocol: "tcp" as const,
    }));
    const sessions = Array.from({ length: 70 }, () => SESSION);
    const [branch] = peers({ sessions }, { mesh: { ...MESH, grants } }).peers;
    expect([branch?.grants.length, branch?.moreGrants, branch?.sessions.length]).toEqual([64, 6, 64]);
  });

  it("do not include the node itself", () => {
    const domain = aDomain([aPeer(1, "me"), aPeer(4, "branch")]);
    expect(peers({}, { domain }).peers.map(({ name }) => name)).toEqual(["branch"]);
  });
});
