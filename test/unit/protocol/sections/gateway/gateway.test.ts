import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { describeIssues } from "../../../../../src/protocol/channel/envelope.ts";
import { gatewayLists, gatewayScalars } from "../../../../../src/protocol/sections/gateway/fields.ts";
import { GatewaySection, normaliseGateway } from "../../../../../src/protocol/sections/gateway/gateway.ts";

const server = { enabled: true, type: "public", host: "gw.example.net", port: 8443 };
const node = { nodeType: "Node" } as const;
const read = (raw: unknown) => normaliseGateway(raw, node);
const rejections = (raw: unknown) => read(raw).rejected.map(({ code, message }) => `${code} ${message}`);
const notices = (raw: unknown, nodeType: "Node" | "Agent" = "Node") =>
  normaliseGateway(raw, { nodeType }).notices.map(({ code, message }) => `${code} ${message}`);
const path = (id: string, more: object = {}) => ({ id, node: "hub", host: "192.0.2.1", port: 8443, ...more });

const DEFAULTS = {
  isServerRejected: false,
  clients: [],
  paths: [],
  connectToPublic: true,
  udpEnabled: false,
  hops: {
    mode: "peer-request",
    protocol: "syn",
    intervalSeconds: 20,
    synPayload: 0,
    icmpPayload: 56,
    overrides: [],
    requestsHops: false,
  },
  latency: { mode: "none", monitors: [] },
  routes: [],
};

describe("a section as parsed by a node", () => {
  it.each([undefined, null, {}, { enabled: false }])("is all defaults for %j", (raw) => {
    expect(read(raw)).toEqual({ gateway: DEFAULTS, rejected: [], notices: [] });
    expect(normaliseGateway(raw, { nodeType: "Agent" }).gateway.udpEnabled).toBe(true);
  });

  it("gets its defaults", () => {
    const {
      gateway,
      rejected,
      notices: noted,
    } = read({
      ...server,
      type: "private",
      host: "GW.Example.net",
      port: "8443",
      udpEnabled: true,
      maxmbps: 200,
      maxClientWriteMbps: 1.5,
      connectToPublic: false,
      monitorHopsMode: "never",
      monitorHops: true,
      requestClientsMonitorHops: true,
      monitorHopsProtocol: "sack",
      monitorHopsInterval: 5,
      monitorHopsSynPayload: 1440,
      monitorHopsIcmpPayload: 0,
      monitorHopsOverrides: [{ node: "hub", protocol: "icmp" }],
      latencyMonitorMode: "any",
      latencyMonitors: [{ node: "hub", path: "lte", maxLatency: 80, critical: true, recoverCount: 2 }],
      clients: [
        { name: "Edge-2", enabled: false },
        { name: "edge-1", enabled: true },
      ],
      paths: [path("lte", { node: "hub", local: "10.0.0.2", default: true, enabled: false })],
      routes: [
        { route: "far.example", dest: "hub", metric: 9 },
        { route: "near.example", dest: "hub", metric: 1 },
      ],
      acls: [{ source: "Edge-1.example", dest: "edge-2.example" }],
      mesh: "blue",
      master: true,
      future: { deep: 1 },
    });
    expect([rejected, noted]).toEqual([[], []]);
    expect(gateway).toEqual({
      server: {
        type: "private",
        host: "gw.example.net",
        port: 8443,
        udpEnabled: true,
        udpPort: 8443,
      },
      isServerRejected: false,
      clients: [
        { name: "Edge-2", enabled: false },
        { name: "edge-1", enabled: true },
      ],
      paths: [
        { id: "lte", node: "hub", host: "192.0.2.1", port: 8443, local: "10.0.0.2", isDefault: true, enabled: false },
      ],
      connectToPublic: false,
      ingressBitsPerSecond: 200_000_000,
      egressBitsPerSecond: 1_500_000,
      udpEnabled: true,
      hops: {
        mode: "never",
        protocol: "sack",
        intervalSeconds: 5,
        synPayload: 1440,
        icmpPayload: 0,
        overrides: [{ node: "hub", protocol: "icmp" }],
        requestsHops: true,
      },
      latency: {
        mode: "any",
        monitors: [{ node: "hub", path: "lte", maxLatencyMs: 80, triggerCount: 6, recoverCount: 2, isCritical: true }],
      },
      routes: [
        { to: "near.example", via: "hub", metric: 1 },
        { to: "far.example", via: "hub", metric: 9 },
      ],
      acls: [{ source: "Edge-1.example", dest: "edge-2.example" }],
    });
  });

  it.each([
    [{ monitorHops: true }, "always"],
    [{ monitorGateway: true }, "always"],
    [{ monitorHops: false, monitorGateway: true }, "peer-request"],
    [{ monitorHops: true, monitorHopsMode: "peer-request" }, "peer-request"],
  ])("traces hops as %j configures", (fields, mode) => {
    expect(read(fields).gateway.hops.mode).toBe(mode);
  });

  it.each([
    ["no type", { type: undefined }, ["E_REQUIRED gateway.type: is required when enabled is true"]],
    ["no host", { host: "" }, ["E_REQUIRED gateway.host: is required when enabled is true"]],
    ["no port", { port: null }, ["E_REQUIRED gateway.port: is required when enabled is true"]],
    [
      "ip in place of host",
      { host: undefined, ip: "192.0.2.1" },
      ["E_REQUIRED gateway.ip: is not a field: the address that others dial is called host"],
    ],
    ["an unknown type", { type: "edge" }, ["E_ENUM gateway.type: must be one of public, private, hub"]],
    ["port 0", { port: 0 }, ["E_PORT_RANGE gateway.port: must be 1..65535"]],
    ["a bad UDP port", { udpPort: 70_000 }, ["E_PORT_RANGE gateway.udpPort: must be 1..65535"]],
    ["half an address", { host: "10.0.0.256" }, ["E_NAME_FORMAT gateway.host: must be an IPv4 address or a DNS name"]],
    ["an option as host", { host: "-rf" }, ["E_NAME_FORMAT gateway.host: must be an IPv4 address or a DNS name"]],
    ["a switch as text", { enabled: "true" }, ["E_ENUM gateway.enabled: must be true or false"]],
  ])("has no server with %s, and everything else", (_, change, lines) => {
    const raw = { ...server, paths: [path("a")], connectToPublic: false, ...change };
    expect(rejections(raw)).toEqual(lines);
    const { gateway } = read(raw);
    expect(gateway).toMatchObject({ isServerRejected: true, connectToPublic: false, paths: [{ id: "a" }] });
    expect(gateway.server).toBeUndefined();
  });

  it("needs nothing of a disabled server", () => {
    expect(rejections({ enabled: false })).toEqual([]);
    expect(read({ ...server, enabled: false }).gateway).toEqual(DEFAULTS);
  });

  it("has no server on an agent, and reports it", () => {
    const { gateway, rejected } = normaliseGateway({ ...server, paths: [path("a")] }, { nodeType: "Agent" });
    expect([gateway.server, gateway.isServerRejected, gateway.paths.length, rejected]).toEqual([
      undefined,
      false,
      1,
      [],
    ]);
    expect(notices(server, "Agent")).toEqual([
      "E_UNSUPPORTED_ON_AGENT gateway.enabled: ignored: agents are no gateways",
    ]);
  });

  it.each([
    [{ type: "private" }, "E_DEPENDENCY gateway.clients: lists nobody"],
    [{ type: "private", clients: [{ name: "a", enabled: false }] }, "E_DEPENDENCY gateway.clients: lists nobody"],
    [
      { cert: "tls.example.org" },
      "E_UNSUPPORTED gateway.cert: ignored: a gateway proves itself by its own key, without a certificate",
    ],
    [{ maxmbps: 0.5 }, "E_RANGE gateway.maxmbps: is below 1, which is unlimited"],
    [{ maxClientWriteMbps: -1 }, "E_RANGE gateway.maxClientWriteMbps: is below 1, which is unlimited"],
    [
      { acls: [{ source: "10.0.0.0/8", dest: "b.example" }] },
      "E_ENUM gateway.acls.0.source: is a network, which a relay between nodes does not see",
    ],
  ])("with %j reports it and continues", (change, text) => {
    const raw = { ...server, ...change };
    expect(rejections(raw)).toEqual([]);
    expect(notices(raw)).toEqual([expect.stringContaining(text)]);
    expect(read(raw).gateway.server).toBeDefined();
    expect(JSON.stringify(read(raw).gateway)).not.toMatch(/(in|e)gressBits|tls\.example\.org/);
  });

  it.each([undefined, null, []])("admits everybody without a list of pairs (%j)", (acls) => {
    expect(read({ acls }).gateway.acls).toBeUndefined();
  });

  it.each(["all", [7], [{ source: "a" }], [{ source: "10.0.0.0/8", dest: "b" }]].map((acls) => [acls]))(
    "admits nobody with a list without a valid entry (%j)",
    (acls) => {
      expect(read({ acls }).gateway.acls).toEqual([]);
    },
  );

  it.each([
    ["paths", [path("a"), path("a")], "E_NAME_DUPLICATE gateway.paths.1.id: a is in gateway.paths.0 already"],
    ["paths", [path("a"), path("")], "E_REQUIRED gateway.paths.1.id: is required"],
    ["paths", [path("a"), path("b\n")], "E_NAME_FORMAT gateway.paths.1.id: must not have control characters"],
    ["paths", [path("a"), path("b", { host: "gw.net" })], "gateway.paths.1.host: must be an IPv4 address"],
    [
      "paths",
      [path("a"), path("b", { local: "eth0" })],
      "E_CIDR_INVALID gateway.paths.1.local: must be an IPv4 address",
    ],
    ["paths", [path("a"), path("b", { port: "x" })], "E_PORT_RANGE gateway.paths.1.port: is text"],
    [
      "paths",
      [path("a"), path("b", { requires: ["warp"] })],
      "E_DEPENDENCY gateway.paths.1.requires: not supported: warp",
    ],
    ["paths", [path("a"), null], "E_ENUM gateway.paths.1: must be an object"],
    [
      "clients",
      [
        { name: "a", enabled: true },
        { name: "a", enabled: false },
      ],
      "E_NAME_DUPLICATE gateway.clients.1.name: a",
    ],
    ["clients", [{ name: "a", enabled: true }, { name: "b" }], "E_REQUIRED gateway.clients.1.enabled: is required"],
    [
      "clients",
      [
        { name: "a", enabled: true },
        { name: "a b", enabled: true },
      ],
      "E_NAME_FORMAT gateway.clients.1.name",
    ],
    [
      "routes",
      [
        { route: "a", dest: "b", metric: 1 },
        { route: "10.0.0.0/8", dest: "b", metric: 1 },
      ],
      "E_NAME_FORMAT gateway.routes.1.route: is a network, and must be the name",
    ],
    [
      "routes",
      [
        { route: "a", dest: "b", metric: 1 },
        { route: "a", dest: "b" },
      ],
      "E_REQUIRED gateway.routes.1.metric",
    ],
    [
      "routes",
      [
        { route: "a", dest: "b", metric: 1 },
        { route: "a", metric: 1 },
      ],
      "E_REQUIRED gateway.routes.1.dest",
    ],
    [
      "acls",
      [
        { source: "a", dest: "b" },
        { source: "a", dest: "b c" },
      ],
      "gateway.acls.1.dest: must be the FQDN of a node, or a CIDR",
    ],
  ])("rejects one of %s: %j", (list, items, text) => {
    const raw = { ...server, [list]: items };
    expect(rejections(raw)).toEqual([expect.stringContaining(text)]);
    expect(read(raw).gateway).toMatchObject({ [list]: [{}], server: { port: 8443 } });
  });

  it("rejects a monitor of a missing path, and the later of two traces", () => {
    const monitor = { node: "hub", maxLatency: 10 };
    const raw = {
      latencyMonitors: [monitor, { ...monitor, path: "x" }],
      monitorHopsOverrides: [
        { node: "hub", protocol: "icmp" },
        { node: "hub", protocol: "sack" },
      ],
    };
    expect(rejections(raw)).toEqual([
      "E_NAME_DUPLICATE gateway.monitorHopsOverrides.1.node: hub is in gateway.monitorHopsOverrides.0 already",
      "E_DEPENDENCY gateway.latencyMonitors.1.path: there is no path x",
    ]);
    expect(read(raw).gateway.latency.monitors).toHaveLength(1);
  });

  it("cuts a list that is too long", () => {
    const raw = { paths: Array.from({ length: 600 }, (_, at) => path(`p${at}`)) };
    expect(rejections(raw)).toEqual(["E_RANGE gateway.paths: at most 512 entries; 88 are left out"]);
    expect(read(raw).gateway.paths).toHaveLength(512);
  });

  it.each([7, "on", [], true])("that is not an object (%j) is rejected", (raw) => {
    expect(rejections(raw)).toEqual(["E_ENUM gateway: must be an object"]);
    expect(read(raw).gateway).toEqual(DEFAULTS);
  });

  it("never throws, for any stored value", () => {
    const fields = fc.record(
      Object.fromEntries(
        [...Object.keys(gatewayScalars), ...Object.keys(gatewayLists)].map((name) => [
          name,
          fc.oneof(fc.anything(), fc.array(fc.object({ key: fc.constantFrom("id", "node", "name", "port", "dest") }))),
        ]),
      ),
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(fc.oneof(fields, fc.anything()), (raw) => {
        const { gateway, rejected } = read(raw);
        for (const issue of rejected) expect(issue.message.startsWith(issue.path)).toBe(true);
        expect(gateway.server === undefined || gateway.server.port > 0).toBe(true);
      }),
    );
  });
});

describe("a section in the API", () => {
  const refusals = (body: unknown): readonly string[] => {
    const parsed = GatewaySection.safeParse(body);
    return parsed.success ? [] : describeIssues(parsed.error);
  };

  it.each([
    [{ enabled: false }],
    [server],
    [{ ...server, udpEnabled: true, udpPort: 8444, future: { a: 1 }, master: true, mesh: "m", maxmbps: 0 }],
    [{ ...server, paths: [path("a", { more: 1 })], acls: [{ source: "10.0.0.0/8", dest: "b" }] }],
    [{ enabled: false, requires: ["warp"] }],
  ])("accepts %j unchanged", (body) => {
    expect(refusals(body)).toEqual([]);
    expect(GatewaySection.parse(body)).toEqual(body);
  });

  it.each([
    [{}, ["enabled: is required"]],
    [{ enabled: null }, ["enabled: must be true or false"]],
    [{ enabled: true }, ["type: is required", "host: is required", "port: is required"]],
    [{ ...server, host: undefined, ip: "192.0.2.1" }, ["ip: is not a field"]],
    [{ enabled: false, ip: "192.0.2.1" }, ["ip: is not a field"]],
    [{ ...server, port: "8443" }, ["port: is text"]],
    [{ ...server, maxmbps: -1 }, ["maxmbps: must be a number"]],
    [{ enabled: false, monitorHopsInterval: 4 }, ["monitorHopsInterval: must be a number, 5.."]],
    [{ enabled: false, monitorHopsSynPayload: 1441 }, ["monitorHopsSynPayload: must be a whole number, 0..1440"]],
    [{ enabled: false, monitorHopsMode: "on" }, ["monitorHopsMode: must be one of always, peer-request, never"]],
    [{ enabled: false, monitorHopsProtocol: "udp" }, ["monitorHopsProtocol: must be one of syn, icmp, sack"]],
    [{ enabled: false, latencyMonitorMode: "some" }, ["latencyMonitorMode: must be one of none, any, all"]],
    [{ enabled: false, paths: [path("a"), path("a")] }, ["paths.1.id: a is in gateway.paths.0 already"]],
    [{ enabled: false, paths: [path("a", { local: "::1" })] }, ["paths.0.local: must be an IPv4 address"]],
    [{ enabled: false, paths: {} }, ["paths: must be an array"]],
    [{ enabled: false, clients: [{ name: "a" }] }, ["clients.0.enabled: is required"]],
    [{ enabled: false, routes: [{ route: "10.0.0.0/8", dest: "b", metric: 1 }] }, ["routes.0.route: is a network"]],
    [{ enabled: false, routes: [{}] }, ["routes.0.route: is required", "routes.0.dest", "routes.0.metric"]],
    [{ enabled: false, latencyMonitors: [{ node: "a" }] }, ["latencyMonitors.0.maxLatency: is required"]],
  ])("refuses %j by name", (body, lines) => {
    const found = refusals(body);
    expect(found).toHaveLength(lines.length);
    lines.forEach((line, at) => expect(found[at]).toContain(line));
  });
});

it("paths that are not a list are one issue, also with a monitor of a path", () => {
  const latencyMonitors = [{ node: "n", path: "p", maxLatency: 10 }];
  const { rejected } = normaliseGateway({ paths: "x", latencyMonitors }, { nodeType: "Node" });
  expect(rejected.map(({ message }) => message)).toEqual(["gateway.paths: must be an array"]);
});
