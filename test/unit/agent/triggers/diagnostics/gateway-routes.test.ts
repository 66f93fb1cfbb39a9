import { pino } from "pino";
import { expect, test } from "vitest";
import { gatewayRoutes, routesOutput } from "../../../../../src/agent/triggers/diagnostics/gateway-routes.ts";
import { systemClock } from "../../../../../src/host/clock.ts";
import {
  EDGE_2,
  GATEWAY_1,
  GATEWAY_2,
  peersOf,
  ScriptedTunnels,
  someClient,
  someMesh,
  someNodes,
  somePath,
} from "../../../../support/overlay/scripted-tunnels.ts";
import { rig } from "../rig.ts";

const COUNTED_MS = 10_000;

test("lists every path in the documented form, with decimal rates", () => {
  const mesh = someMesh({
    paths: [
      somePath(GATEWAY_1, { bytesIn: 12_500_000, bytesOut: 1250 }),
      somePath(GATEWAY_1, { id: "wan2", state: "down", remote: undefined, rttMs: undefined }),
      somePath(GATEWAY_2, { state: "connecting", remote: undefined, rttMs: undefined }),
    ],
    clients: [someClient(EDGE_2, { rttMs: 2, remote: { ip: "192.0.2.7", port: 40_001 } })],
  });
  const idle = { receivedMbps: 0, sentMbps: 0, bytesReceived: 0, bytesSent: 0, udp: false };
  expect(routesOutput(someNodes, mesh, COUNTED_MS)).toEqual({
    available: 4,
    connected: 2,
    domains: [
      {
        name: "example.net",
        routes: [
          {
            name: "gw-1",
            path: "",
            rtt: 1.5,
            connected: true,
            client: true,
            udp: false,
            ip: "198.51.100.1",
            port: 8443,
            receivedMbps: 10,
            sentMbps: 0.001,
            bytesReceived: 12_500_000,
            bytesSent: 1250,
          },
          { name: "gw-1", path: "wan2", connected: false, client: true, ...idle },
          { name: "gw-2", path: "", connected: false, client: true, ...idle },
          { name: "edge-2", path: "", rtt: 2, connected: true, client: false, ip: "192.0.2.7", port: 40_001, ...idle },
        ],
      },
    ],
  });
});

test("without an overlay every expected peer is listed as disconnected", () => {
  const edge3 = { uid: "c", fqdn: "edge-3.example.net", mayDial: true } as const;
  const nodes = { ...someNodes, peers: peersOf([...someNodes.peers.values(), edge3]) };
  const output = routesOutput(nodes, undefined, COUNTED_MS);
  expect(output).toMatchObject({
    available: 3,
    connected: 0,
    domains: [
      {
        routes: [
          { name: "gw-1", connected: false, client: true, ip: "198.51.100.1", port: 8443 },
          { name: "gw-2", connected: false, client: true, ip: "gw-2.example.net", port: 443 },
          { name: "edge-3", connected: false, client: false },
        ],
      },
    ],
  });
});

test("two paths to one gateway make one connected peer, and a node without a name has its uid", () => {
  const mesh = someMesh({ paths: [somePath(GATEWAY_1), somePath(GATEWAY_1, { id: "b" }), somePath("left")] });
  const output = routesOutput({ ...someNodes, peers: peersOf([]) }, mesh, COUNTED_MS);
  expect(output).toMatchObject({ available: 3, connected: 2 });
  expect(JSON.stringify(output)).toContain('"name":"left"');
});

test("marks a table with too many rows as cut", () => {
  const clients = Array.from({ length: 20_001 }, (_, at) => someClient(`peer-${at}`));
  const output = routesOutput(someNodes, someMesh({ clients, paths: [] }), COUNTED_MS);
  expect(output).toMatchObject({ available: 20_003, truncated: true });
});

test("the event answers one object, refuses invalid fields by name, and needs an ACTIVE node", async () => {
  const trigger = gatewayRoutes(new ScriptedTunnels(), systemClock(), pino({ level: "silent" }));
  const { run } = rig([trigger]);
  expect(await run("gateway-routes", { body: { name: "gateway-routes", showClusterRoutes: true } })).toMatchObject({
    body: { output: { available: 2, connected: 1, domains: [{ name: "example.net" }] } },
  });
  expect(await run("gateway-routes", { body: { enableLog: "yes" } })).toMatchObject({
    error: { code: "invalid-body", details: { field: "enableLog" } },
  });
  const off = rig([trigger], { node: { type: "Agent", state: "INACTIVE" } });
  expect(await off.run("gateway-routes")).toMatchObject({ error: { code: "inactive" } });
});
