import { describe, expect, it } from "vitest";
import { parseNeighbours, parseShown, type IpOutput } from "../../../../../src/host/network/ip/ip-output.ts";

const never = (): boolean => false;

/** The documents of one batch, from captured items. */
function shown(parts: Partial<Record<keyof IpOutput, readonly unknown[]>>, isListed = never): IpOutput {
  const documents = [parts.links ?? [], parts.addresses ?? [], parts.routes ?? [], parts.rules ?? []];
  return parseShown(documents.map((document) => `${JSON.stringify(document)}\n`).join(""), isListed);
}

// As printed by iproute2 6.1 with -N, and by 6.9 if it differs.
const ETH = {
  ifindex: 2,
  ifname: "eth0",
  flags: ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"],
  mtu: 1500,
  qdisc: "mq",
  operstate: "UP",
  group: "0",
  txqlen: 1000,
  link_type: "[1]",
  address: "52:54:00:AB:CD:EF",
  min_mtu: 68,
};
const ROUTE = { type: "1", dst: "10.0.0.0/8", gateway: "192.0.2.7", dev: "eth0", table: "254", protocol: "218" };
const RULE = { priority: 5180, src: "10.0.0.0", srclen: 8, table: "1000", protocol: "218" };

describe("links", () => {
  it("reads a device, a VLAN and a VRF", () => {
    const vlan = { ...ETH, ifname: "eth0.30", ifindex: 7, link: "eth0", altnames: ["holdfast:eth0.30"] };
    const info = { info_kind: "vlan", info_data: { protocol: "802.1Q", id: 30, flags: ["REORDER_HDR"] } };
    const vrf = { ...ETH, ifname: "guest", flags: ["NOARP"], operstate: "DOWN", group: "218" };
    const { links } = shown({
      links: [
        ETH,
        { ...vlan, linkinfo: info, master: "guest" },
        { ...vrf, linkinfo: { info_kind: "vrf", info_data: { table: 1001 } } },
        {},
      ],
    });
    expect(links).toStrictEqual([
      {
        name: "eth0",
        index: 2,
        mtu: 1500,
        mac: "52:54:00:ab:cd:ef",
        isUp: true,
        hasCarrier: true,
        operState: "up",
        isOurs: false,
        altnames: [],
      },
      {
        name: "eth0.30",
        index: 7,
        kind: "vlan",
        parent: "eth0",
        vlanId: 30,
        master: "guest",
        mtu: 1500,
        mac: "52:54:00:ab:cd:ef",
        isUp: true,
        hasCarrier: true,
        operState: "up",
        isOurs: true,
        altnames: ["holdfast:eth0.30"],
      },
      {
        name: "guest",
        index: 2,
        kind: "vrf",
        table: 1001,
        mtu: 1500,
        mac: "52:54:00:ab:cd:ef",
        isUp: false,
        hasCarrier: false,
        operState: "down",
        isOurs: true,
        altnames: [],
      },
    ]);
  });

  it("does not read an address of another kind as a MAC, or a bridge as a VLAN", () => {
    const tunnel = { ...ETH, ifname: "gre1", address: "192.0.2.1", linkinfo: { info_kind: "gre" } };
    const lo = { ...ETH, ifname: "lo", address: "00:00:00:00:00:00" };
    const peer = { ...ETH, ifname: "hf-a", link: "hf-b", linkinfo: { info_kind: "veth" } };
    const { links } = shown({ links: [tunnel, lo, peer] });
    for (const link of links.slice(0, 2)) expect(link).not.toHaveProperty("mac");
    expect(links[2]).not.toHaveProperty("parent");
    expect(links[2]?.isOurs).toBe(true);
  });
});

describe("addresses", () => {
  const info = { family: "inet", local: "192.0.2.1", prefixlen: 24, scope: "0", label: "eth0" };
  const forever = { valid_life_time: 4_294_967_295, preferred_life_time: 4_294_967_295 };
  const of = (extra: object, isListed = never) =>
    shown({ addresses: [{ ...ETH, addr_info: [{ ...info, ...forever, ...extra }] }] }, isListed).addresses[0];

  it("recognizes ours by the label, the protocol or the ledger", () => {
    const plain = { link: "eth0", address: "192.0.2.1/24", isOurs: false, isDynamic: false };
    expect(of({})).toStrictEqual(plain);
    expect(of({ label: "eth0:hf" })).toStrictEqual({ ...plain, isOurs: true });
    expect(of({ label: "eth1:hf" })).toStrictEqual(plain);
    expect(of({ protocol: "218" })).toStrictEqual({ ...plain, isOurs: true });
    expect(of({ protocol: 218 })).toStrictEqual({ ...plain, isOurs: true });
    expect(of({}, () => true)).toStrictEqual({ ...plain, isOurs: true });
    expect(of({ valid_life_time: 180 })).toStrictEqual({ ...plain, isDynamic: true });
  });

  it("ignores IPv6", () => {
    expect(of({ family: "inet6", local: "fe80::1", prefixlen: 64 })).toBeUndefined();
  });
});

describe("routes", () => {
  it("normalizes them", () => {
    const { routes } = shown({
      routes: [
        { ...ROUTE, dst: "default", metric: 100, scope: "0", prefsrc: "192.0.2.1", flags: ["onlink"] },
        { ...ROUTE, type: "7", dst: "192.0.2.9", gateway: undefined, table: "1000", metric: 4_278_198_272, flags: [] },
        { ...ROUTE, type: "unicast", table: "main", protocol: "kernel", gateway: undefined, scope: "253" },
        { ...ROUTE, protocol: "zebra", scope: "link", nexthops: [], flags: ["linkdown"] },
      ],
    });
    const base = { kind: "unicast", link: "eth0", isOnLink: false, scope: "global" };
    expect(routes).toStrictEqual([
      {
        ...base,
        table: 254,
        destination: "0.0.0.0/0",
        via: "192.0.2.7",
        metric: 100,
        protocol: 218,
        isOnLink: true,
        source: "192.0.2.1",
      },
      {
        table: 1000,
        kind: "unreachable",
        destination: "192.0.2.9/32",
        metric: 4_278_198_272,
        protocol: 218,
        scope: "global",
        isOnLink: false,
      },
      { ...base, table: 254, destination: "10.0.0.0/8", metric: 0, protocol: 2, scope: "link" },
      { ...base, table: 254, destination: "10.0.0.0/8", via: "192.0.2.7", metric: 0, protocol: 0, scope: "link" },
    ]);
  });

  it("skips the kernel's own table and kinds that are never configured", () => {
    const routes = [
      { ...ROUTE, table: "255" },
      { ...ROUTE, table: "local" },
      { ...ROUTE, type: "2" },
      { ...ROUTE, type: "throw" },
    ];
    expect(shown({ routes }).routes).toStrictEqual([]);
  });
});

describe("rules", () => {
  it("reads their selectors", () => {
    const { rules } = shown({
      rules: [
        { ...RULE, dst: "192.0.2.1", iif: "eth0", iif_detached: null, oif: "eth1", fwmark: "0x10", fwmask: "0xff" },
        { priority: 32_766, src: "all", table: "main", protocol: "kernel", fwmark: "0x1" },
      ],
    });
    expect(rules).toStrictEqual([
      {
        priority: 5180,
        protocol: 218,
        from: "10.0.0.0/8",
        to: "192.0.2.1/32",
        inLink: "eth0",
        outLink: "eth1",
        mark: 16,
        mask: 255,
        table: 1000,
      },
      { priority: 32_766, protocol: 2, mark: 1, mask: 0xffff_ffff, table: 254 },
    ]);
  });

  it.each([{ not: null }, { ipproto: "tcp" }, { dport: 80 }, { uid_start: 0, uid_end: 9 }, { suppress_ifgroup: "7" }])(
    "does not read one with %j as the plain one",
    (extra) => expect(shown({ rules: [{ ...RULE, ...extra }] }).rules).toStrictEqual([]),
  );

  it("distinguishes one that suppresses short prefixes from the plain one", () => {
    const rules = [RULE, { ...RULE, suppress_prefixlen: 0 }];
    expect(shown({ rules }).rules.map(({ suppressLength }) => suppressLength)).toStrictEqual([undefined, 0]);
  });

  it("skips one without a table", () => {
    expect(shown({ rules: [{ ...RULE, table: undefined, action: "8" }] }).rules).toStrictEqual([]);
  });
});

describe("unreadable output", () => {
  it.each([
    ["", "0 documents in place of 4"],
    ["[]\n[]\n[]\n", "3 documents in place of 4"],
    ["[]\n[]\n[]\n[]\n[]\n", "5 documents in place of 4"],
    ["[]\n[\n[]\n[]\n", "JSON"],
    ["{}\n[]\n[]\n[]\n", "links"],
    [`[]\n[]\n[{"dst":5}]\n[]\n`, "routes.0.dst"],
    [`[]\n[]\n[]\n[{"priority":1,"table":"mine"}]\n`, "rules.0.table: unknown name mine"],
    [`[{"ifname":"a","ifindex":1,"mtu":1}]\n[]\n[]\n[]\n`, "links.0.flags"],
  ])("is reported: %j", (stdout, message) => {
    const expected = { code: "bad-output", message: expect.stringContaining(message) as string };
    expect(() => parseShown(stdout, never)).toThrow(expect.objectContaining(expected));
  });
});

describe("neighbours", () => {
  it("reads them, with and without an answer", () => {
    const text = `[{"dst":"192.0.2.7","dev":"eth0","lladdr":"02:00:00:00:00:0A","state":["REACHABLE"]},{"dst":"192.0.2.8","dev":"eth0","state":["FAILED"]}]\n`;
    expect(parseNeighbours(text)).toStrictEqual([
      { link: "eth0", address: "192.0.2.7", mac: "02:00:00:00:00:0a", states: ["reachable"] },
      { link: "eth0", address: "192.0.2.8", states: ["failed"] },
    ]);
    expect(() => parseNeighbours("[1]\n")).toThrow(expect.objectContaining({ code: "bad-output" }));
  });
});
