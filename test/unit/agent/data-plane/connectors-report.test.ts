import { describe, expect, it } from "vitest";
import { connectorsReport } from "../../../../src/agent/data-plane/connectors-report.ts";
import { ConnectorsReport, type ConnectorView } from "../../../../src/protocol/local/overlay.ts";
import type { ListenerState } from "../../../../src/protocol/overlay/overlay.ts";
import type { JsonObject } from "../../../../src/protocol/values/values.ts";
import type { OverlayView } from "../../../../src/host/overlay/client.ts";
import { aDomain } from "../../../support/overlay/gateway-model.ts";
import { aMesh, aMeshState, aPathState, uidOf } from "../../../support/overlay/mesh.ts";
import { aService } from "../../../support/overlay/overlay-rig.ts";
import { ABSENT, aReading, type ReadingParts } from "../../../support/overlay/overlay-reading.ts";

const web = { node: "local", service: "web", protocol: "tcp", port: 8080 };
const KEY = "tcp/any/8080";

function listening(key: string, more: Partial<ListenerState> = {}): ListenerState {
  return { key, connector: "c1", state: "listening", addresses: ["0.0.0.0"], ...more };
}

const config = (items: JsonObject, more: JsonObject = {}): ReadingParts["config"] => ({
  connectors: { version: 2, items, ...more },
});

const report = (parts: ReadingParts, changes: Parameters<typeof aReading>[1] = {}): ConnectorsReport =>
  ConnectorsReport.parse(connectorsReport(aReading(parts, changes)));

const only = (parts: ReadingParts, changes: Parameters<typeof aReading>[1] = {}): ConnectorView | undefined =>
  report(parts, changes).connectors[0];

describe("a connector that listens", () => {
  it("has its address and target, its limits and its counters", () => {
    const item = { ...web, maxmbps: 2.5, sourceBlock: "10.0.0.0/8", maxConnections: 9, description: "the web" };
    const view = only({
      config: config({ c1: { ...item, localIp: "127.0.0.1", protocol: "ssh" } }),
      listeners: [listening("tcp/127.0.0.1/8080", { addresses: ["127.0.0.1"] })],
      counters: [
        {
          key: "tcp/127.0.0.1/8080",
          flows: 5,
          activeFlows: 2,
          bytesIn: 10,
          bytesOut: 20,
          refusals: { "source-not-permitted": 3 },
          errors: { reset: 1 },
        },
      ],
    });
    expect(view).toEqual({
      id: "c1",
      description: "the web",
      state: "listening",
      protocol: "ssh",
      listen: { transport: "tcp", port: 8080, address: "127.0.0.1", bound: ["127.0.0.1"] },
      destination: { node: "local", service: "web" },
      limits: { bitsPerSecond: 2_500_000, maxFlows: 9, sources: ["10.0.0.0/8"] },
      counters: {
        flowsActive: 2,
        flowsTotal: 5,
        bytesIn: 10,
        bytesOut: 20,
        datagramsDropped: 0,
        refusals: { "source-not-permitted": 3 },
        errors: { reset: 1 },
      },
    });
  });

  it("reports, on an agent install, that its sources are not filtered", () => {
    const parts = { config: config({ c1: { ...web, sourceBlock: "10.0.0.0/8" } }), listeners: [listening(KEY)] };
    expect(only({ ...parts, node: { type: "Agent" } })).toMatchObject({
      state: "listening",
      ignored: [{ code: "E_UNSUPPORTED_ON_AGENT", message: "sourceBlock: ignored: agents do not filter sources" }],
    });
    expect(only(parts)).not.toHaveProperty("ignored");
  });

  it("reports that its service is down, though it listens", () => {
    const service = { name: "web", protocol: "tcp", host: "127.0.0.1", port: 1, healthCheck: { interval: 1 } };
    const view = only({
      config: { ...config({ c1: web }), services: { services: [service] } },
      listeners: [listening(KEY)],
      services: [
        { name: "web", protocol: "tcp", host: "127.0.0.1", port: 1, connectTimeoutMs: 1, idleTimeoutMs: 1000 },
      ],
      health: [{ name: "web", state: "down", since: 5 }],
    });
    expect(view).toMatchObject({ state: "listening", reason: { code: "service-down" } });
  });
});

describe("a connector that does not listen", () => {
  it("leads to a cluster, which is distinguished from an unknown node", () => {
    const parts = { config: config({ c1: { ...web, node: "pair" } }) };
    const domain = aDomain(undefined, undefined, ["pair"]);
    expect(only(parts, { domain })).toMatchObject({
      state: "waiting",
      reason: { code: "unsupported", message: expect.stringContaining("(unsupported: clusters)") as string },
    });
    expect(only(parts, { domain: aDomain() })).toMatchObject({ reason: { code: "unknown-node" } });
  });

  it.each<[string, JsonObject, Partial<ReadingParts>, Parameters<typeof aReading>[1], Partial<ConnectorView>]>([
    ["is off", { enabled: false }, {}, {}, { state: "off" }],
    [
      "is off with the node",
      {},
      { node: { state: "INACTIVE" } },
      {},
      { state: "off", reason: { code: "inactive", message: "the node is INACTIVE" } },
    ],
    [
      "has its port taken",
      {},
      { listeners: [listening(KEY, { state: "failed", reason: "address-in-use", message: "EADDRINUSE" })] },
      {},
      {
        state: "failed",
        reason: { code: "address-in-use", message: "tcp 8080 is taken by another program (EADDRINUSE)" },
      },
    ],
    [
      "waits for an address",
      { nic: "eth9" },
      {},
      {},
      { state: "waiting", reason: { code: "address-absent", message: "nic: eth9 has no IPv4 address" } },
    ],
    [
      "waits for the overlay",
      {},
      {},
      { ...ABSENT, status: { state: "down", since: 1, reason: "it ended" } },
      { state: "waiting", reason: { code: "overlay-down", message: "it ended" } },
    ],
    [
      "waits for its section",
      {},
      {},
      { why: [{ section: "connectors", code: "boom", message: "no luck", since: 1, lastAttempt: 1 }] },
      { state: "waiting", reason: { code: "boom", message: "no luck" } },
    ],
    [
      "is about to",
      {},
      {},
      { why: [{ section: "services", code: "boom", message: "of another", since: 1, lastAttempt: 1 }] },
      { state: "waiting", reason: { code: "pending", message: "it is about to be applied" } },
    ],
    [
      "leads to a node that nobody knows",
      { node: "branch-2" },
      {},
      {},
      {
        state: "waiting",
        reason: {
          code: "unknown-node",
          message:
            "node: this node knows no node branch-2: check the name, and that the node is registered in this domain and ACTIVE",
        },
      },
    ],
  ])("%s", (_what, change, parts, changes, expected) => {
    const view = only({ config: config({ c1: { ...web, ...change } }), ...parts }, changes);
    expect(view).toMatchObject(expected);
    expect(view?.reason).toEqual(expected.reason);
    expect(view?.counters).toBeUndefined();
  });

  it("is refused with all of its mistakes, beside valid ones", () => {
    const { connectors, issues } = report({
      config: config({ good: web, twin: { ...web, index: 9 }, "a.b": { ...web, port: 0, protocol: "telnet" } }),
      listeners: [listening(KEY)],
    });
    expect(connectors.map(({ id, state }) => [id, state])).toEqual([
      ["good", "listening"],
      ["a.b", "rejected"],
      ["twin", "rejected"],
    ]);
    expect(connectors[2]?.reason).toEqual({
      code: "E_PORT_IN_USE",
      message: "port: tcp 8080 on any address is taken by the connector good",
    });
    expect(connectors[1]?.reason?.message).toMatch(
      /^protocol: must be .*; port: must be|^port: must be .*; protocol: must be/,
    );
    expect(issues).toEqual([]);
  });

  it("does not show the counters of the one that replaced it", () => {
    const { connectors } = report({
      config: config({ c0: { ...web, enabled: false }, c1: web }),
      listeners: [listening(KEY)],
      counters: [{ key: KEY, flows: 3 }],
    });
    expect(connectors.map(({ counters }) => counters?.flowsTotal)).toEqual([undefined, 3]);
  });
});

describe("a connector to another node", () => {
  const item = { ...web, node: "branch" };
  const { sessions: _sessions, ...state } = aMeshState();
  const seen = (view: Partial<OverlayView>) => {
    const { view: empty } = aReading({ config: {} });
    return only(
      { config: config({ c1: item }), counters: [{ key: KEY, refusals: { "not-granted": 3 } }] },
      { domain: aDomain(), view: { ...empty, states: new Map([[KEY, listening(KEY)]]), ...view }, counters: undefined },
    );
  };

  it("leads there, and has no reason while a path is up", () => {
    const view = seen({ mesh: aMesh(), standing: state });
    expect(view).toMatchObject({ state: "listening", destination: { node: "branch", service: "web" } });
    expect(view?.reason).toBeUndefined();
    const client = { peer: uidOf(4), state: "up", since: 1, sessions: 1, bytesIn: 0, bytesOut: 0 } as const;
    expect(seen({ mesh: aMesh(), standing: { ...state, paths: [], clients: [client] } })?.reason).toBeUndefined();
  });

  it("reports that no path is up, and why, for that time", () => {
    const standing = { ...state, paths: [aPathState({ state: "down", reason: "connection refused" })] };
    expect(seen({ mesh: aMesh(), standing })).toMatchObject({
      state: "listening",
      reason: { code: "no-path", message: "no path to any gateway is up (connection refused)" },
    });
    expect(seen({})?.reason).toEqual({ code: "no-path", message: "this node has no path to other nodes" });
    expect(seen({ mesh: aMesh() })?.reason).toBeUndefined();
  });

  it("has no report of a service of the same name on this node that is down", () => {
    const reading = aReading(
      {
        config: {
          ...config({ c1: item, c2: { ...web, port: 8081 } }),
          services: { version: 2, items: { s: { name: "web", protocol: "tcp", host: "127.0.0.1", port: 80 } } },
        },
        services: [aService("web", 80)],
        listeners: [listening(KEY), listening("tcp/any/8081", { connector: "c2" })],
        health: [{ name: "web", state: "down", since: 1 }],
      },
      { domain: aDomain() },
    );
    const view = { ...reading.view, mesh: aMesh(), standing: state };
    const { connectors } = connectorsReport({ ...reading, view });
    expect(connectors.map(({ reason }) => reason?.code)).toEqual([undefined, "service-down"]);
  });
});

describe("connectors with a conflict on the machine", () => {
  const items = { c1: { ...web, nic: "eth0" }, c2: { ...web, localIp: "10.0.0.3" }, c3: { ...web, nic: "eth1" } };
  const addresses = new Map([
    ["eth0", ["10.0.0.2", "10.0.0.3"]],
    ["eth1", ["10.0.0.2", "10.0.0.4"]],
  ]);
  const taken = (address: string) => ({
    code: "E_PORT_IN_USE",
    message: `port: tcp 8080 on ${address} is taken by the connector c1`,
  });

  it("name the one that has the address, whether they listen elsewhere or not", () => {
    const listeners = ["tcp/nic:eth0/8080", "tcp/nic:eth1/8080"].map((key) => listening(key));
    const { connectors } = report({ config: config(items), listeners }, { addresses });
    expect(connectors.map(({ state, reason }) => [state, reason])).toEqual([
      ["listening", undefined],
      ["waiting", taken("10.0.0.3")],
      ["listening", taken("10.0.0.2")],
    ]);
  });

  it("have none with one to another node", () => {
    const first = { ...items.c1, node: "branch-2" };
    const { connectors } = report(
      { config: config({ c1: first, c2: items.c2 }), listeners: [listening("tcp/10.0.0.3/8080")] },
      { addresses },
    );
    expect(connectors[1]).toMatchObject({ id: "c2", state: "listening" });
    expect(connectors[1]?.reason).toBeUndefined();
  });
});

describe("the section as a whole", () => {
  it("is reported apart from its items, in either form", () => {
    expect(report({ config: { connectors: { connectors: "x" } } })).toMatchObject({
      connectors: [],
      issues: [{ path: "connectors.connectors", code: "E_ENUM" }],
    });
    const legacy = report({ config: { connectors: { connectors: [{ ...web, id: "old", port: "x" }] } } });
    expect(legacy.connectors).toEqual([
      {
        id: "old",
        state: "rejected",
        reason: { code: "E_PORT_RANGE", message: "port: is text, and must be a whole number, 1..65535" },
      },
    ]);
    expect(report({ config: {} })).toEqual({
      schema: 1,
      overlay: { state: "up", since: 1000, pid: 7 },
      issues: [],
      connectors: [],
    });
  });

  it("reports an overlay that does not answer, and uses its last report", () => {
    const { overlay, connectors } = report(
      { config: config({ c1: web }), listeners: [listening(KEY)], counters: [{ key: KEY }] },
      { counters: undefined },
    );
    expect(overlay).toEqual({ state: "up", since: 1000, pid: 7, reason: "it does not answer" });
    expect(connectors[0]).toMatchObject({ state: "listening" });
    expect(connectors[0]?.counters).toBeUndefined();
  });
});
