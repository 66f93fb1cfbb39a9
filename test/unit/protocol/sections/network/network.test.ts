import { describe, expect, it } from "vitest";
import { readNetwork, type NetworkContext } from "../../../../../src/protocol/sections/network/read.ts";
import { AGENT, APPLIANCE } from "../../../../support/control-plane/example-documents.ts";

const ALONE: NetworkContext = { nodeType: "Node", isMember: false };
const MEMBER: NetworkContext = { nodeType: "Node", isMember: true };
const read = (raw: unknown, context = ALONE) => readNetwork(raw, context);
const lines = (issues: readonly { readonly code: string; readonly message: string }[]): string[] =>
  issues.map(({ code, message }) => `${code} ${message}`);

const NOTHING = {
  isPresent: false,
  interfaces: [],
  vrfs: [],
  routing: { routes: [], nats: [], rules: [] },
  tunnels: [],
  darkMode: false,
  forwarding: false,
  bridgeCidr: "172.18.0.0/16",
};
const PLAIN = {
  dhcp: false,
  dns: [],
  isVirtual: false,
  addIps: [],
  ignoreHealthCheck: false,
  routes: [],
  subInterfaces: [],
};

describe("the section as parsed by the node", () => {
  it("is nothing if absent, and present if empty", () => {
    for (const raw of [undefined, null]) expect(read(raw)).toEqual({ config: NOTHING, rejected: [], notices: [] });
    expect(read({})).toEqual({ config: { ...NOTHING, isPresent: true }, rejected: [], notices: [] });
  });

  it.each([
    [7, "E_ENUM network: must be an object"],
    [[], "E_ENUM network: must be an object"],
    [{ interfaces: {}, darkMode: true }, "E_ENUM network.interfaces: must be an array"],
  ])("is invalid as a whole as %j, so that nothing is removed", (raw, line) => {
    const { config, rejected, isUnusable } = read(raw);
    expect([config, lines(rejected), isUnusable]).toEqual([NOTHING, [line], true]);
  });

  it("is not an agent's", () => {
    const { config, rejected, notices } = read(APPLIANCE.network, { nodeType: "Agent", isMember: false });
    expect([config, rejected]).toEqual([NOTHING, []]);
    expect(lines(notices)).toEqual([
      "E_UNSUPPORTED_ON_AGENT network: ignored: the operating system owns the interfaces of agents",
    ]);
    const silent = "network" in AGENT ? AGENT.network : undefined;
    expect(read(silent, { nodeType: "Agent", isMember: false }).notices).toEqual([]);
  });

  it("accepts the example of an appliance completely", () => {
    const { config, rejected, notices } = read(APPLIANCE.network);
    expect(rejected).toEqual([]);
    expect(lines(notices)).toEqual([
      "E_UNSUPPORTED network.tunnels.0.type: tunnels of type vnet are not supported: it is stored and not made",
      "E_UNSUPPORTED network.tunnels.1.type: tunnels of type ipsec are not supported: it is stored and not made",
    ]);
    expect(config).toEqual({
      ...NOTHING,
      isPresent: true,
      interfaces: [
        {
          ...PLAIN,
          nic: "ens160",
          ip: "198.51.100.10/28",
          gateway: "198.51.100.1",
          dns: ["192.0.2.53", "192.0.2.54"],
          mtu: 1500,
        },
        {
          ...PLAIN,
          nic: "ens192",
          ip: "192.168.10.2/24",
          gateway: "192.168.10.1",
          routes: [{ route: "192.168.11.0/24" }, { route: "172.30.0.0/16", next: "192.168.10.254" }],
          subInterfaces: [
            {
              vlanId: 30,
              link: "ens192.30",
              ip: "192.168.30.2/24",
              addIps: ["192.168.30.3/32"],
              vrf: "guest",
              routes: [{ route: "192.168.31.0/24", next: "192.168.30.1" }],
            },
          ],
        },
      ],
      vrfs: [
        {
          name: "partner",
          forwarding: true,
          routes: [
            { dest: "10.77.0.0/16", dev: "ips0", metric: 10 },
            { dest: "10.50.0.0/16", dev: "corp0", metric: 10 },
          ],
          nats: [{ source: "10.50.1.0/24", dest: "10.77.0.0/16", toSource: "10.78.1.0/24", masquerade: false }],
          acls: [
            {
              line: 10,
              protocol: "tcp",
              source: "10.50.0.0/16",
              dest: "10.77.0.0/16",
              ports: { first: 443, last: 443 },
              action: "allow",
            },
          ],
          rules: [],
        },
        { name: "guest", forwarding: false, routes: [], nats: [], acls: [], rules: [] },
      ],
      tunnels: [
        { type: "vnet", name: "corp0", enabled: true },
        { type: "ipsec", name: "ips0", enabled: true },
      ],
    });
  });

  it("sets every field of an interface", () => {
    const { config, rejected, notices } = read({
      interfaces: [
        {
          nic: "eth1",
          description: "LAN",
          ip: "10.0.0.2/24",
          subnet: "ignored, since ip has a prefix",
          gateway: "10.0.0.1",
          dns: ["192.0.2.53", "192.0.2.53"],
          mtu: 9001,
          mode: "manual",
          speed: 1000,
          duplex: "half",
          vrf: "default",
          virtual: true,
          addIps: ["10.0.0.3/24", "10.0.0.2/24"],
          ignoreHealthCheck: true,
          dhcpPool: "10.0.0.50-10.0.0.60",
          routes: [{ route: "10.1.0.0/16", next: "10.0.0.9", description: "far" }],
          future: 1,
        },
      ],
      darkMode: true,
      forwarding: true,
      bridgeCIDR: "10.200.0.0/16",
    });
    expect([rejected, lines(notices)]).toEqual([
      [],
      [
        "ignoreHealthCheck: stored and not applied: no health of a cluster is judged yet",
        "virtual: stored and not applied: the node uses a link that exists and makes none",
      ].map((text) => `E_UNSUPPORTED network.interfaces.0.${text}`),
    ]);
    expect(config).toEqual({
      ...NOTHING,
      isPresent: true,
      darkMode: true,
      forwarding: true,
      bridgeCidr: "10.200.0.0/16",
      interfaces: [
        {
          ...PLAIN,
          nic: "eth1",
          description: "LAN",
          ip: "10.0.0.2/24",
          gateway: "10.0.0.1",
          dns: ["192.0.2.53"],
          mtu: 9001,
          fixed: { speedMbps: 1000, duplex: "half" },
          isVirtual: true,
          addIps: ["10.0.0.3/24"],
          ignoreHealthCheck: true,
          routes: [{ route: "10.1.0.0/16", next: "10.0.0.9", description: "far" }],
        },
      ],
    });
  });

  it("sets every field of routes, translations, lists and rules", () => {
    const end = { source: "10.1.0.0/16", dest: "0.0.0.0/0" };
    const { config, rejected, notices } = read({
      vrfs: [{ name: "a", description: "first", acls: [{ protocol: "any", ...end, action: "accept" }] }],
      interfaces: [{ nic: "eth1", ip: "10.1.0.1/16" }],
      routes: [{ dest: "10.9.0.0/16", dev: "eth1", via: "10.1.0.9", metric: 7, uid: "r", description: "d" }],
      nats: [
        { ...end, toSource: "10.2.0.0/16", uid: "n", description: "d" },
        { ...end, toSource: "192.0.2.1/32" },
        { dest: "192.0.2.7/32", toDest: "10.1.0.7/32" },
        { masquerade: true },
      ],
      rules: [
        {
          line: 2,
          protocol: "udp",
          source: "public",
          dest: "private",
          ports: "53",
          in: "eth1",
          action: "forward",
          iface: "eth1",
          vrf: "a",
          snat: true,
          dmac: "02:00:5E:00:53:01",
          uid: "u",
          description: "d",
        },
        { line: 1, protocol: "tcp", ...end, action: "dnat", dnat: "10.1.0.7:8080" },
        { line: 3, protocol: "tcp", ...end, action: "dnat", dnat: "10.1.0.7" },
      ],
    });
    expect([rejected, notices]).toEqual([[], []]);
    expect(config.vrfs).toEqual([
      {
        name: "a",
        description: "first",
        forwarding: false,
        routes: [],
        nats: [],
        acls: [{ protocol: "any", ...end, action: "allow" }],
        rules: [],
      },
    ]);
    const { source } = end;
    expect(config.routing).toEqual({
      routes: [{ dest: "10.9.0.0/16", dev: "eth1", via: "10.1.0.9", metric: 7, uid: "r", description: "d" }],
      nats: [
        { source, toSource: "10.2.0.0/16", masquerade: false, uid: "n", description: "d" },
        { source, toSource: "192.0.2.1/32", masquerade: false },
        { dest: "192.0.2.7/32", toDest: "10.1.0.7/32", masquerade: false },
        { masquerade: true },
      ],
      rules: [
        {
          index: 1,
          line: 1,
          protocol: "tcp",
          ...end,
          action: "dnat",
          dnat: { address: "10.1.0.7", port: 8080 },
          snat: false,
        },
        {
          index: 0,
          line: 2,
          protocol: "udp",
          source: "public",
          dest: "private",
          ports: { first: 53, last: 53 },
          in: "eth1",
          action: "forward",
          iface: "eth1",
          vrf: "a",
          snat: true,
          dmac: "02:00:5e:00:53:01",
          uid: "u",
          description: "d",
        },
        { index: 2, line: 3, protocol: "tcp", ...end, action: "dnat", dnat: { address: "10.1.0.7" }, snat: false },
      ],
    });
  });

  it("has no access list if the document has none", () => {
    const { config } = read({ vrfs: [{ name: "a" }, { name: "b", acls: [] }] });
    expect(config.vrfs.map(({ acls }) => acls)).toEqual([undefined, []]);
    expect([config.routing.acls, read({ acls: [] }).config.routing.acls]).toEqual([undefined, []]);
  });
});

describe("the order of lists and rules", () => {
  const any = { protocol: "any", source: "0.0.0.0/0", dest: "0.0.0.0/0", action: "drop" };
  it("is by line, those without one last, and otherwise as written", () => {
    const given = [{ uid: "a" }, { uid: "b", line: 20 }, { uid: "c", line: "3" }, { uid: "d", line: 20 }, { uid: "e" }];
    const list = given.map((one) => Object.assign({}, any, one));
    const section = { acls: list, rules: list };
    const { acls = [], rules } = read(section).config.routing;
    for (const read of [acls, rules]) expect(read.map(({ uid }) => uid).join("")).toBe("cbdae");
  });

  it("is not changed by clamping", () => {
    const given = [
      { uid: "a", line: 99_999 },
      { uid: "b", line: 40_000 },
      { uid: "c", line: 0 },
      { uid: "d", line: 1 },
    ];
    const { acls = [] } = read({ acls: given.map((one) => Object.assign({}, any, one)) }).config.routing;
    expect(acls.map(({ uid, line }) => `${uid}${line}`).join(" ")).toBe("c1 d1 b32768 a32768");
  });
});

describe("the link of a VLAN", () => {
  const links = (interfaces: unknown): string[] =>
    read({ interfaces }).config.interfaces.flatMap(({ subInterfaces }) => subInterfaces.map(({ link }) => link));
  const vlan = (vlanID: number, at = vlanID) => ({ vlanID, ip: `10.${at >> 8}.${at & 255}.1/24` });

  it("is named for its parent and its number, and cut if too long", () => {
    const long = { nic: "enp0s31f6u1u2c3", subInterfaces: [vlan(1), vlan(4094)] };
    const cut = links([{ nic: "eth0", subInterfaces: [vlan(30)] }, long]);
    expect(cut).toEqual([
      "eth0.30",
      expect.stringMatching(/^enp0s31f6\w{4}\.1$/),
      expect.stringMatching(/^enp0s3\w{4}\.4094$/),
    ]);
    expect(cut.map((link) => link.length)).toEqual([7, 15, 15]);
    // By itself it has the same name.
    expect(links([{ ...long, subInterfaces: [vlan(4094)] }])).toEqual(cut.slice(2));
  });

  it("is unique among all VLANs of interfaces with long names", () => {
    const ids = Array.from({ length: 4094 }, (_, at) => at + 1);
    const nics = ["enp0s31f6u1u2c3", "enp0s31f6u1u2c4"].map((nic, at) => ({
      nic,
      subInterfaces: ids.map((id) => vlan(id, id + at * 4096)),
    }));
    const all = links(nics);
    expect([all.length, new Set(all).size]).toEqual([8188, 8188]);
    expect(all.every((link) => link.length <= 15)).toBe(true);
  });

  it("is another if an interface has the name already", () => {
    const long = { nic: "enp0s31f6u1u2c3", subInterfaces: [vlan(7)] };
    const [link] = links([long]);
    const [other] = links([long, { nic: link }]);
    expect(other).toMatch(/^enp0s31f6\w{4}\.7$/);
    expect(other).not.toBe(link);
  });

  it("is used by routes and rules under its long name", () => {
    const { config, notices } = read({
      interfaces: [{ nic: "enp0s31f6u1u2", subInterfaces: [vlan(400)] }],
      routes: [{ dest: "10.9.0.0/16", dev: "enp0s31f6u1u2.400" }],
    });
    expect(notices).toEqual([]);
    expect(config.routing.routes[0]?.dev).toBe(config.interfaces[0]?.subInterfaces[0]?.link);
  });
});

describe("what a member gets from its cluster", () => {
  it("is its address by role, the routes of the cloud under both names, and the addresses of its VLANs", () => {
    const raw = {
      interfaces: [
        {
          nic: "eth1",
          ip: "192.0.2.2/24",
          clusterIP: "192.0.2.50",
          cloudRoutes: [{ route: "10.1.0.0/16", description: "a" }, { route: "10.2.3.4/16" }],
          clusterRoutes: [{ route: "10.3.0.0/16" }, { route: "10.1.0.0/16", description: "a" }],
          clusterRouteTables: ["rtb-1"],
          subInterfaces: [
            { vlanID: 5, ip: "10.5.0.2/24", clusterIPs: ["10.5.0.1/24"] },
            { vlanID: 6, clusterIPs: ["10.6.0.1/24", "10.6.0.9/24"] },
          ],
        },
      ],
    };
    const { config, rejected, notices } = read(raw, MEMBER);
    expect([config.isPresent, rejected, lines(notices)]).toEqual([
      true,
      [],
      [
        ...["cloudRoutes", "clusterRoutes", "clusterRouteTables"].map(
          (field) =>
            `E_UNSUPPORTED network.interfaces.0.${field}: stored and not applied: this version changes no route tables of clouds`,
        ),
        "E_CIDR_HOSTBITS network.interfaces.0.cloudRoutes.1.route: 10.2.3.4/16 has host bits; taken as 10.2.0.0/16",
      ],
    ]);
    expect(config.interfaces[0]).toMatchObject({
      clusterIp: "192.0.2.50",
      cloudRoutes: [{ route: "10.1.0.0/16", description: "a" }, { route: "10.2.0.0/16" }, { route: "10.3.0.0/16" }],
      clusterRouteTables: ["rtb-1"],
      subInterfaces: [
        { vlanId: 5, ip: "10.5.0.2/24", addIps: ["10.5.0.1/24"], roleBound: ["10.5.0.1/24"] },
        { vlanId: 6, ip: "10.6.0.1/24", addIps: ["10.6.0.9/24"], roleBound: ["10.6.0.1/24", "10.6.0.9/24"] },
      ],
    });
    const [alone] = read(raw).config.interfaces;
    expect(alone).not.toHaveProperty("clusterIp");
    expect(alone?.subInterfaces).toEqual([expect.not.objectContaining({ roleBound: expect.anything() as unknown })]);
  });

  it("leaves the WAN unchanged while the member has no interfaces of its own", () => {
    expect(read({ darkMode: true }, MEMBER).config).toMatchObject({ isPresent: false, darkMode: true });
    expect(read({ interfaces: [] }, MEMBER).config.isPresent).toBe(true);
    expect(read({ darkMode: true }).config.isPresent).toBe(true);
  });
});

describe("warnings", () => {
  it("are limited", () => {
    const interfaces = Array.from({ length: 200 }, (_, at) => ({ nic: `eth${at}`, ip: "172.18.0.9/24" }));
    const { config, notices } = read({ interfaces });
    expect([config.interfaces.length, notices.length]).toEqual([200, 128]);
  });
});

it.each([
  ["vrfs", { interfaces: [{ nic: "eth0", mode: "auto", ip: "192.0.2.1/24", vrf: "v1" }], vrfs: "x" }],
  ["tunnels", { tunnels: {}, routes: [{ dest: "10.7.0.0/16", dev: "gre1" }] }],
])("%s that are not a list are one issue, also if an entry names one of them", (name, section) => {
  const { rejected, notices } = readNetwork(section, { nodeType: "Node", isMember: false });
  expect([...rejected, ...notices].map(({ message }) => message)).toEqual([`network.${name}: must be an array`]);
});
