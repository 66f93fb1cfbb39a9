import { describe, expect, test } from "vitest";
import { effective } from "../../../../src/agent/shadow/merge.ts";
import type { Config } from "../../../../src/protocol/documents/documents.ts";

interface Case {
  readonly name: string;
  readonly node: Config;
  readonly cluster: Config | undefined;
  readonly config: Config;
  readonly shadowed?: readonly string[];
  readonly errors?: readonly string[];
}

const v2 = (items: Readonly<Record<string, unknown>>, more = {}) => ({ enabled: true, version: 2, items, ...more });
const networkOf = (interfaces: readonly unknown[], more = {}) => ({ network: { interfaces, ...more } });

const cases: readonly Case[] = [
  {
    name: "without a cluster the node's own is in force, untouched",
    node: { connectors: { connectors: [{ id: "a" }] }, snmp: { a: 1 } },
    cluster: undefined,
    config: { connectors: { connectors: [{ id: "a" }] }, snmp: { a: 1 } },
  },
  {
    name: "what only the cluster has is inherited",
    node: {},
    cluster: { services: { services: [{ id: "a", name: "web" }] } },
    config: { services: { services: [{ id: "a", name: "web" }] } },
  },
  {
    name: "connectors are united by id, and the cluster's wins",
    node: { connectors: v2({ a: { port: 1 }, b: { port: 2 } }) },
    cluster: { connectors: v2({ a: { port: 9 } }) },
    config: { connectors: v2({ a: { port: 9 }, b: { port: 2 } }) },
    shadowed: ["connectors.items.a"],
  },
  {
    name: "connectors at the same place collide; another protocol, address or port does not",
    node: {
      connectors: v2({
        same: { protocol: "tcp", port: 80, nic: "eth1" },
        ssh: { protocol: "ssh", port: 80, nic: "eth1" },
        udp: { protocol: "udp", port: 80, nic: "eth1" },
        link: { protocol: "tcp", port: 80, nic: "eth2" },
        port: { protocol: "tcp", port: 81, nic: "eth1" },
      }),
    },
    cluster: { connectors: v2({ c: { protocol: "tcp", port: 80, nic: "eth1" } }) },
    config: {
      connectors: v2({
        c: { protocol: "tcp", port: 80, nic: "eth1" },
        udp: { protocol: "udp", port: 80, nic: "eth1" },
        link: { protocol: "tcp", port: 80, nic: "eth2" },
        port: { protocol: "tcp", port: 81, nic: "eth1" },
      }),
    },
    shadowed: ["connectors.items.same", "connectors.items.ssh"],
  },
  {
    name: "listening everywhere collides with listening anywhere, both ways",
    node: { connectors: v2({ a: { port: 80 }, b: { port: 81, localIp: "192.0.2.1" }, c: { port: 82, nic: "any" } }) },
    cluster: { connectors: v2({ x: { port: 80, nic: "eth1" }, y: { port: 81 } }) },
    config: { connectors: v2({ x: { port: 80, nic: "eth1" }, y: { port: 81 }, c: { port: 82, nic: "any" } }) },
    shadowed: ["connectors.items.a", "connectors.items.b"],
  },
  {
    name: "a disabled connector holds nothing, and a disabled section none of its own",
    node: { connectors: v2({ a: { port: 80 } }, { enabled: false }) },
    cluster: { connectors: v2({ b: { port: 80 } }) },
    config: { connectors: v2({ b: { port: 80 }, a: { port: 80, enabled: false } }) },
  },
  {
    name: "legacy and second version come together in the second, what is no item included",
    node: { services: { services: [{ id: "a", name: "web" }, { id: "b", name: "db" }, 7] } },
    cluster: { services: v2({ c: { name: "web" } }) },
    config: {
      services: v2({ c: { name: "web" }, b: { id: "b", name: "db" }, "services-2": 7 }),
    },
    shadowed: ["services.items.a"],
  },
  {
    name: "an interface has its address from the node and its cluster address from the cluster",
    node: networkOf([{ nic: "eth1", ip: "192.0.2.2/24", mtu: 1500, clusterIP: "192.0.2.9" }]),
    cluster: networkOf([{ nic: "eth1", clusterIP: "192.0.2.1", cloudRoutes: [{ route: "198.51.100.0/24" }] }]),
    config: networkOf([
      {
        nic: "eth1",
        ip: "192.0.2.2/24",
        mtu: 1500,
        clusterIP: "192.0.2.1",
        cloudRoutes: [{ route: "198.51.100.0/24" }],
      },
    ]),
    errors: ["network.interfaces.eth1.clusterIP"],
  },
  {
    name: "what is a cluster's is ignored on a member whose cluster has no network, and an empty list is not worth a word",
    node: networkOf([{ nic: "eth1", clusterIP: "192.0.2.9", cloudRoutes: [], clusterRouteTables: ["rtb-1"] }]),
    cluster: {},
    config: networkOf([{ nic: "eth1" }]),
    errors: ["network.interfaces.eth1.clusterIP", "network.interfaces.eth1.clusterRouteTables"],
  },
  {
    name: "without interfaces of its own a member has none from the cluster",
    cluster: networkOf([{ nic: "eth1", clusterIP: "192.0.2.1" }], { darkMode: true }),
    node: {},
    config: { network: { darkMode: true } },
    errors: ["network.interfaces.eth1"],
  },
  {
    name: "of two entries of a cluster for one interface the first is in force",
    node: networkOf([{ nic: "eth1" }]),
    cluster: networkOf([
      { nic: "eth1", clusterIP: "192.0.2.1" },
      { nic: "eth1", clusterIP: "192.0.2.2" },
    ]),
    config: networkOf([{ nic: "eth1", clusterIP: "192.0.2.1" }]),
  },
  {
    name: "addressing at the cluster and an interface the member lacks are errors",
    node: networkOf([{ nic: "eth1", ip: "192.0.2.2/24" }]),
    cluster: networkOf([
      { nic: "eth1", dhcp: true },
      { nic: "eth9", clusterIP: "192.0.2.1" },
    ]),
    config: networkOf([{ nic: "eth1", ip: "192.0.2.2/24" }]),
    errors: ["network.interfaces.eth1.dhcp", "network.interfaces.eth9"],
  },
  {
    name: "routes and VLANs are united, and the cluster's wins",
    node: networkOf([
      {
        nic: "eth1",
        routes: [{ route: "10.1.2.3/8", next: "192.0.2.7" }, { route: "10.9.0.0/16" }],
        subInterfaces: [
          { vlanID: "5", ip: "own", vrf: "mine", routes: [{ route: "10.4.0.0/16", next: "192.0.2.5" }] },
          { vlanID: 6, clusterIPs: ["stray"] },
        ],
      },
    ]),
    cluster: networkOf([
      {
        nic: "eth1",
        routes: [{ route: "10.0.0.0/8", next: "192.0.2.8" }],
        subInterfaces: [
          { vlanID: 5, ip: "theirs", addIps: ["more"], vrf: "shared" },
          { vlanID: 7, ip: "alone" },
        ],
      },
    ]),
    config: networkOf([
      {
        nic: "eth1",
        routes: [{ route: "10.0.0.0/8", next: "192.0.2.8" }, { route: "10.9.0.0/16" }],
        subInterfaces: [
          {
            vlanID: 5,
            ip: "own",
            vrf: "shared",
            routes: [{ route: "10.4.0.0/16", next: "192.0.2.5" }],
            clusterIPs: ["theirs", "more"],
          },
          { vlanID: 7, clusterIPs: ["alone"] },
          { vlanID: 6 },
        ],
      },
    ]),
    shadowed: ["network.interfaces.eth1.routes.10.0.0.0/8", "network.interfaces.eth1.subInterfaces.5.vrf"],
  },
  {
    name: "tunnels and VRFs go by name, lists and switches as a whole",
    node: { network: { tunnels: [{ name: "a", x: 1 }, { name: "b" }], nats: [1], routes: [2], darkMode: true } },
    cluster: { network: { tunnels: [{ name: "a", y: 1 }], nats: [], forwarding: true } },
    config: {
      network: {
        tunnels: [{ name: "a", y: 1 }, { name: "b" }],
        nats: [],
        routes: [2],
        darkMode: true,
        forwarding: true,
      },
    },
    shadowed: ["network.tunnels.a", "network.nats"],
  },
  {
    name: "a virtual network has its management address from the member and no path from the cluster",
    node: { vpn: { networks: [{ name: "lan", ip: "10.1.0.2", dns: "own" }, { name: "mine" }] } },
    cluster: { vpn: { networks: [{ name: "lan", ip: "10.1.0.9", dns: "theirs", routes: [{ dest: "a", path: 3 }] }] } },
    config: {
      vpn: {
        networks: [{ name: "lan", ip: "10.1.0.2", dns: "theirs", routes: [{ dest: "a" }] }, { name: "mine" }],
      },
    },
    shadowed: ["vpn.networks.lan.dns"],
    errors: ["vpn.networks.lan.routes"],
  },
  {
    name: "containers and the WireGuard gateway come from the cluster, and core key by key",
    node: { exec: { a: 1 }, apigw: { a: 1 }, core: { a: 1, b: 1 } },
    cluster: { exec: { b: 2 }, apigw: { b: 2 }, core: { b: 2 } },
    config: { exec: { b: 2 }, apigw: { b: 2 }, core: { a: 1, b: 2 } },
    shadowed: ["exec", "apigw"],
  },
  {
    name: "all containers, volumes and caps of a cluster stand in the place of the member's, however they are called",
    node: { exec: { commands: [{ id: "a" }, { id: "b" }], volumes: [{ name: "v" }], limits: { cpuMax: 1 } } },
    cluster: { exec: { commands: [{ id: "c" }] } },
    config: { exec: { commands: [{ id: "c" }] } },
    shadowed: ["exec"],
  },
  {
    name: "a member keeps its containers while the cluster has no section for them",
    node: { exec: { commands: [{ id: "a" }] } },
    cluster: { network: { darkMode: true } },
    config: { exec: { commands: [{ id: "a" }] }, network: { darkMode: true } },
  },
  {
    name: "a node's own sections are no cluster's",
    node: { gateway: { a: 1 } },
    cluster: { gateway: { a: 2 }, snmp: {}, _bgp: {}, alert: {}, cluster: {}, dns: {}, jvm: {} },
    config: { gateway: { a: 1 } },
    errors: ["gateway", "snmp", "_bgp", "alert", "cluster", "dns", "jvm"],
  },
];

describe("the merge of a cluster's configuration into a member's", () => {
  test.each(cases)("$name", ({ node, cluster, config, shadowed = [], errors = [] }) => {
    const before = structuredClone([node, cluster]);
    const merged = effective(node, cluster);
    expect(merged.config).toEqual(config);
    expect(merged.shadowed.map(({ path }) => path)).toEqual(shadowed);
    expect(merged.errors.map(({ path }) => path)).toEqual(errors);
    expect([node, cluster]).toEqual(before);
  });

  test("survives malformed sections", () => {
    const odd = {
      connectors: { items: 7 },
      services: { services: "x" },
      network: { interfaces: {}, vrfs: 1 },
      vpn: {},
    };
    // Anything but a list stays, to be refused: an empty list would remove every address.
    const { config, errors } = effective(odd, odd);
    expect(config.network).toEqual({ interfaces: {}, vrfs: 1 });
    expect(errors.map(({ code, path }) => `${code} ${path}`)).toEqual([
      "wrong-form network.interfaces",
      "wrong-form network.vrfs",
    ]);
    const shaped = { network: { interfaces: [{ nic: "eth1", subInterfaces: 5 }], vrfs: [{ name: "a" }] } };
    expect(effective(shaped, odd).config.network).toEqual(shaped.network);
  });
});
