import { expect, test } from "vitest";
import {
  gatewaysReport,
  localNetwork,
  networkTargets,
  peersReport,
  type NetworkReading,
} from "../../../src/agent/local-network.ts";
import { HostError } from "../../../src/errors.ts";
import { GatewaysReport, NetworkTargets, PeersReport } from "../../../src/protocol/local-network.ts";
import type { OverlayMesh } from "../../../src/protocol/overlay-mesh.ts";
import { overlayUp } from "../../support/fake-local-provider.ts";
import {
  EDGE_1,
  EDGE_2,
  GATEWAY_1,
  GATEWAY_2,
  someClient,
  someMesh,
  someNodes,
  somePath,
} from "../../support/scripted-tunnels.ts";

const KEY = "k".repeat(43);
const mesh: OverlayMesh = {
  self: EDGE_1,
  peers: [
    { uid: GATEWAY_1, fqdn: "gw-1.example.net", key: KEY },
    { uid: EDGE_2, fqdn: "edge-2.example.net", key: KEY },
  ],
  paths: [
    { gateway: GATEWAY_1, id: "", host: "198.51.100.1", port: 8443, isDefault: true },
    { gateway: GATEWAY_1, id: "wan2", host: "203.0.113.1", port: 8443, local: "192.0.2.7", isDefault: false },
  ],
  grants: [],
  routes: [],
};
const reading = (changes: Partial<NetworkReading> = {}): NetworkReading => ({
  overlay: overlayUp,
  mesh,
  state: someMesh({ paths: [somePath(GATEWAY_1, { carries: true })] }),
  nodes: someNodes,
  reasons: [],
  ...changes,
});

test("each path is shown as it is asked for and as it stands", () => {
  const report = GatewaysReport.parse(gatewaysReport(reading()));
  expect(report.paths).toEqual([
    { ...somePath(GATEWAY_1, { carries: true }), name: "gw-1.example.net", host: "198.51.100.1", port: 8443 },
    expect.objectContaining({
      id: "wan2",
      state: "down",
      reason: "the overlay does not tell of it",
      host: "203.0.113.1",
      local: "192.0.2.7",
    }),
  ]);
  expect(report.server).toBeUndefined();
});

test("a path that is on its way out is shown, and without an overlay none is up", () => {
  const state = someMesh({ paths: [somePath(GATEWAY_2)] });
  expect(gatewaysReport(reading({ state })).paths.map(({ name }) => name)).toEqual([
    "gw-1.example.net",
    "gw-1.example.net",
    "gw-2.example.net",
  ]);
  const overlay = { state: "down", since: 7, reason: "it ended" } as const;
  expect(gatewaysReport(reading({ state: undefined, overlay })).paths).toMatchObject([
    { state: "down", reason: "it ended", since: 7 },
    { state: "down" },
  ]);
});

test("the node's own gateway is shown with where it listens, and only reasons of the section", () => {
  const server = { addresses: ["0.0.0.0"], port: 8443 };
  const standing = { state: "listening" as const, refused: { tls: 2 }, relays: { active: 1, total: 2, bytes: 3 } };
  const at = { since: 1, lastAttempt: 1 };
  const reasons = [
    { section: "gateway", code: "E_TYPE", message: "gateway.type: wrong", ...at },
    { section: "services", code: "E_X", message: "x", ...at },
  ];
  const report = gatewaysReport(reading({ mesh: { ...mesh, server }, state: someMesh({ server: standing }), reasons }));
  expect(report.server).toEqual({ ...standing, ...server });
  expect(report.reasons).toEqual([{ code: "E_TYPE", message: "gateway.type: wrong" }]);
  expect(gatewaysReport(reading({ mesh: { ...mesh, server }, state: undefined })).server).toMatchObject({
    state: "off",
    port: 8443,
  });
});

test("clients and sessions go by name, and a stranger by its uid", () => {
  const session = {
    peer: EDGE_2,
    role: "source" as const,
    gateway: GATEWAY_1,
    path: "",
    since: 1,
    activeFlows: 1,
    flows: 2,
    bytesIn: 3,
    bytesOut: 4,
  };
  const stranger = "0197f1a2-0000-7000-8000-0000000000ff";
  const report = PeersReport.parse(
    peersReport(reading({ state: someMesh({ clients: [someClient(stranger)], sessions: [session] }) })),
  );
  expect(report.clients[0]?.name).toBe(stranger);
  expect(report.sessions).toEqual([{ ...session, name: "edge-2.example.net", gatewayName: "gw-1.example.net" }]);
  expect(peersReport(reading({ state: undefined }))).toMatchObject({ clients: [], sessions: [] });
});

test("the targets are the control plane, the proxy and every path with the key that proves its gateway", () => {
  const proxies = { https: new URL("http://u:p@proxy.example.net:3128"), noProxy: ["example.org"] };
  const targets = networkTargets(undefined, proxies, mesh, someNodes);
  expect(NetworkTargets.parse(targets)).toEqual({
    schema: 1,
    proxy: { url: "http://u:p@proxy.example.net:3128/", noProxy: ["example.org"] },
    paths: mesh.paths.map((path) => ({ ...path, name: "gw-1.example.net", key: KEY })),
  });
  expect(networkTargets(undefined, { noProxy: [] }, undefined, undefined)).toEqual({ schema: 1, paths: [] });
});

test("an overlay that fails, or hangs, does not keep the answer", async () => {
  const overlay = (answer: Promise<never>) => ({
    status: () => ({ state: "up" as const, since: 1, pid: 7 }),
    view: { services: new Map(), listeners: new Map(), states: new Map(), health: new Map(), mesh },
    mesh: () => answer,
  });
  const rest = {
    tunnels: { nodes: () => someNodes },
    applying: { why: () => ({ schema: 1 as const, reasons: [] }) },
    registration: () => undefined,
    proxies: { noProxy: [] },
  };
  const signal = new AbortController().signal;
  const older = localNetwork({ overlay: overlay(Promise.reject(new HostError("overlay-older", "too old"))), ...rest });
  expect((await older.gateways(signal)).overlay).toEqual({ state: "up", since: 1, pid: 7, reason: "too old" });
  const late = Promise.reject(new DOMException("late", "TimeoutError"));
  const hung = localNetwork({ overlay: overlay(late), ...rest });
  expect((await hung.peers(signal)).overlay.reason).toBe("it does not answer");
});
