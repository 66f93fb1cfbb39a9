import { describe, expect, it } from "vitest";
import { NetworkSection } from "../../../../../src/protocol/sections/network/network.ts";
import { readNetwork } from "../../../../../src/protocol/sections/network/read.ts";
import { acl, checkCases, ipsec, nic, wg } from "../../../../support/network/network-cases.ts";

describe("every rule of tunnels, routes, translations, lists and rules", () => {
  checkCases([
    {
      name: "a rule to no VRF that exists",
      given: [{ rules: [{ ...acl(), action: "forward", vrf: "no" }] }],
      rejected: ["E_REF_UNKNOWN rules.0.vrf: there is no VRF no; what the rule matches is dropped until there is one"],
    },
    {
      name: "a tunnel in no VRF that exists",
      given: [{ tunnels: [ipsec({ vrf: "no" })] }],
      rejected: ["E_REF_UNKNOWN tunnels.0.vrf: there is no VRF no; the tunnel is held down"],
    },
    {
      name: "a virtual network that is not attached",
      given: [
        { tunnels: [{ type: "vnet", name: "v0", enabled: true, mtu: 1430, networkId: "41" }] },
        { attached: new Set([7]) },
      ],
      notices: ["E_DEPENDENCY tunnels.0.networkId: vpn does not attach the virtual network 41; the tunnel is down"],
      refused: ["tunnels.0.networkId: is text, and must be a whole number, 0..2147483647"],
    },
    {
      name: "no virtual network",
      given: [
        {
          tunnels: [
            { type: "vnet", name: "v0", enabled: true, mtu: 1430 },
            { type: "vnet", name: "v1", enabled: true, mtu: 1430, networkId: 0 },
          ],
        },
      ],
      rejected: [
        "E_REQUIRED tunnels.0.networkId: is required with type vnet",
        "E_RANGE tunnels.1.networkId: 0 is no virtual network",
      ],
      refused: ["tunnels.0.networkId: is required with type vnet", "tunnels.1.networkId: 0 is no virtual network"],
    },
    {
      name: "no WireGuard endpoint",
      given: [{ tunnels: [wg()] }, { hasWireguard: false }],
      notices: ["E_DEPENDENCY tunnels.0.type: apigw has no WireGuard endpoint; the tunnel is down"],
    },
    {
      name: "keys that are none",
      given: [
        {
          tunnels: [
            wg({ publicKey: "short" }),
            wg({ name: "wg1", presharedKey: "A".repeat(44) }),
            wg({ name: "wg2", publicKey: undefined }),
          ],
        },
      ],
      rejected: [
        "E_KEY_FORMAT tunnels.0.publicKey: must be 32 bytes in base64",
        "E_KEY_FORMAT tunnels.1.presharedKey: must be 32 bytes in base64",
        "E_REQUIRED tunnels.2.publicKey: is required with type wireguard",
      ],
      refused: [
        "tunnels.0.publicKey: must be 32 bytes in base64",
        "tunnels.1.presharedKey: must be 32 bytes in base64",
        "tunnels.2.publicKey: is required with type wireguard",
      ],
    },
    {
      name: "IPsec with a wrong cipher",
      given: [{ tunnels: [ipsec({ destination: undefined, ikeGroup: "", psk: undefined, ipsecCipher: "des" })] }],
      rejected: ["E_ENUM tunnels.0.ipsecCipher: must be one of aes128-sha1, aes128-sha256, aes256-sha1, aes256-sha256"],
      refused: [
        "tunnels.0.ikeGroup: must be one of 2, 5, 14, 15, 16",
        "tunnels.0.ipsecCipher: must be one of aes128-sha1, aes128-sha256, aes256-sha1, aes256-sha256",
      ],
    },
    {
      name: "IPsec without what it needs",
      given: [{ tunnels: [ipsec({ destination: undefined, ikeGroup: undefined, psk: "" })] }],
      rejected: [
        "E_REQUIRED tunnels.0.destination: is required with type ipsec",
        "E_REQUIRED tunnels.0.ikeGroup: is required with type ipsec",
        "E_REQUIRED tunnels.0.psk: is required with type ipsec",
      ],
      refused: [
        "tunnels.0.destination: is required with type ipsec",
        "tunnels.0.ikeGroup: is required with type ipsec",
      ],
    },
    {
      name: "a secret that is too long",
      given: [{ tunnels: [ipsec({ psk: "hunter2".repeat(200) })] }],
      rejected: ["E_SECRET_LENGTH tunnels.0.psk: must have at most 1024 characters"],
      refused: ["tunnels.0.psk: must have at most 1024 characters"],
    },
    {
      name: "other fields of tunnels",
      given: [
        {
          tunnels: [
            ipsec({ type: "l2tp" }),
            ipsec({ mtu: 10, replayWindow: 65, auto: "now" }),
            ipsec({ networkId: 0, ikeGroup: "14", name: "a" }),
            ipsec({ enabled: false, name: "b" }),
            ipsec({ name: "a" }),
          ],
        },
      ],
      rejected: [
        "E_ENUM tunnels.0.type: must be one of ipsec, gre, vnet, wireguard",
        "E_RANGE tunnels.1.mtu: must be a whole number, 1000..10000",
        "E_ENUM tunnels.1.replayWindow: must be one of 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192",
        "E_ENUM tunnels.1.auto: must be one of add, start",
        "E_NAME_DUPLICATE tunnels.4.name: a is in network.tunnels.2 already",
      ],
      notices: ["E_UNSUPPORTED tunnels.2.type: tunnels of type ipsec are not supported: it is stored and not made"],
      refused: [
        "tunnels.0.type: must be one of ipsec, gre, vnet, wireguard",
        "tunnels.1.mtu: must be a whole number, 1000..10000",
        "tunnels.1.replayWindow: must be one of 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192",
        "tunnels.1.auto: must be one of add, start",
        "tunnels.2.ikeGroup: must be one of 2, 5, 14, 15, 16",
      ],
    },
    {
      name: "ports where there are none",
      given: [
        {
          acls: [acl({ protocol: "icmp", ports: "443" })],
          rules: [acl({ protocol: "any", ports: "443", action: "accept" })],
        },
      ],
      notices: [
        "E_DEPENDENCY rules.0.ports: only tcp and udp have ports; ignored with any",
        "E_DEPENDENCY acls.0.ports: only tcp and udp have ports; ignored with icmp",
      ],
      refused: ["rules.0.ports: only tcp and udp have ports", "acls.0.ports: only tcp and udp have ports"],
    },
    {
      name: "ports that are none",
      given: [{ acls: ["0", "70000", "20-10", "a", "1-2-3"].map((ports) => acl({ ports })) }],
      rejected: [
        "E_PORT_RANGE acls.0.ports: must be a port or a range such as 1000-2000, within 1..65535",
        "E_PORT_RANGE acls.1.ports: must be a port or a range such as 1000-2000, within 1..65535",
        "E_PORT_RANGE acls.2.ports: must be a port or a range such as 1000-2000, within 1..65535",
        "E_PORT_RANGE acls.3.ports: must be a port or a range such as 1000-2000, within 1..65535",
        "E_PORT_RANGE acls.4.ports: must be a port or a range such as 1000-2000, within 1..65535",
      ],
      refused: [
        "acls.0.ports: must be a port or a range such as 1000-2000, within 1..65535",
        "acls.1.ports: must be a port or a range such as 1000-2000, within 1..65535",
        "acls.2.ports: must be a port or a range such as 1000-2000, within 1..65535",
        "acls.3.ports: must be a port or a range such as 1000-2000, within 1..65535",
        "acls.4.ports: must be a port or a range such as 1000-2000, within 1..65535",
      ],
    },
    { name: "a port as a number", given: [{ acls: [acl({ ports: 443 })] }], refused: ["acls.0.ports: must be text"] },
    {
      name: "a translation with host bits",
      given: [{ nats: [{ source: "10.0.0.8/8", toSource: "11.0.0.0/8" }] }],
      notices: ["E_CIDR_HOSTBITS nats.0.source: 10.0.0.8/8 has host bits; taken as 10.0.0.0/8"],
      refused: ["nats.0.source: 10.0.0.8/8 has host bits"],
    },
    {
      name: "networks with host bits, or without a length",
      given: [
        {
          interfaces: [nic({ routes: [{ route: "10.10.10.10/24" }] })],
          routes: [{ dest: "10.9.9.9/16", via: "10.0.0.1" }],
          acls: [acl({ source: "10.1.1.1" })],
        },
      ],
      notices: [
        "E_CIDR_HOSTBITS interfaces.0.routes.0.route: 10.10.10.10/24 has host bits; taken as 10.10.10.0/24",
        "E_CIDR_HOSTBITS routes.0.dest: 10.9.9.9/16 has host bits; taken as 10.9.0.0/16",
        "E_CIDR_INVALID acls.0.source: 10.1.1.1 has no prefix length; taken as 10.1.1.1/32",
      ],
      refused: ["acls.0.source: must be an IPv4 network such as 192.0.2.0/24"],
    },
    {
      name: "translations that cannot be",
      given: [
        {
          nats: [
            { source: "10.0.0.0/24", toSource: "10.1.0.0/25" },
            { dest: "10.0.0.0/24", toDest: "10.1.0.0/23" },
            { toSource: "10.1.0.0/24" },
            { masquerade: true, toSource: "10.1.0.1/32" },
            { source: "10.0.0.0/24" },
          ],
        },
      ],
      rejected: [
        "E_PREFIX_MISMATCH nats.0.toSource: 10.1.0.0/25 has another prefix length than 10.0.0.0/24; only one address may stand for many",
        "E_PREFIX_MISMATCH nats.1.toDest: 10.1.0.0/23 has another prefix length than 10.0.0.0/24; only one address may stand for many",
        "E_PREFIX_MISMATCH nats.2.toSource: 10.1.0.0/24 has another prefix length than any; only one address may stand for many",
        "E_DEPENDENCY nats.3.toSource: has no place beside masquerade",
        "E_REQUIRED nats.4: translates nothing: it needs toSource, toDest or masquerade",
      ],
      refused: [
        "nats.0.toSource: 10.1.0.0/25 has another prefix length than 10.0.0.0/24; only one address may stand for many",
        "nats.1.toDest: 10.1.0.0/23 has another prefix length than 10.0.0.0/24; only one address may stand for many",
        "nats.2.toSource: 10.1.0.0/24 has another prefix length than any; only one address may stand for many",
        "nats.3.toSource: has no place beside masquerade",
        "nats.4: translates nothing: it needs toSource, toDest or masquerade",
      ],
    },
    {
      name: "metrics and lines out of range",
      given: [
        {
          routes: [
            { dest: "10.1.0.0/16", via: "10.0.0.1", metric: 0 },
            { dest: "10.2.0.0/16", via: "10.0.0.1", metric: 900 },
            { dest: "10.3.0.0/16", via: "10.0.0.1", metric: "low" },
          ],
          acls: [acl({ line: 0 }), acl({ line: 99999 }), acl({ line: 1.5 })],
        },
      ],
      rejected: [
        "E_RANGE routes.2.metric: is text, and must be a whole number, 1..200",
        "E_RANGE acls.2.line: must be a whole number, 1..32768",
      ],
      notices: [
        "E_RANGE routes.0.metric: 0 is not 1..200; taken as 1",
        "E_RANGE routes.1.metric: 900 is not 1..200; taken as 200",
        "E_RANGE acls.0.line: 0 is not 1..32768; taken as 1",
        "E_RANGE acls.1.line: 99999 is not 1..32768; taken as 32768",
      ],
      refused: [
        "routes.0.metric: must be a whole number, 1..200",
        "routes.1.metric: must be a whole number, 1..200",
        "routes.2.metric: is text, and must be a whole number, 1..200",
        "acls.0.line: must be a whole number, 1..32768",
        "acls.1.line: must be a whole number, 1..32768",
        "acls.2.line: must be a whole number, 1..32768",
      ],
    },
    {
      name: "routes that cannot be",
      given: [
        {
          routes: [
            { dest: "10.1.0.0/16" },
            { via: "10.0.0.1" },
            { dest: "10.4.0.0/16", via: "10.0.0.1" },
            { dest: "10.4.1.1/16", via: "10.0.0.3" },
            { dest: "10.5.0.0/16", dev: "eth7" },
          ],
        },
      ],
      rejected: [
        "E_REQUIRED routes.0.dev: is required without via",
        "E_REQUIRED routes.1.dest: is required",
        "E_NAME_DUPLICATE routes.3.dest: 10.4.0.0/16 with this metric is in network.routes.2 already",
      ],
      notices: [
        "E_CIDR_HOSTBITS routes.3.dest: 10.4.1.1/16 has host bits; taken as 10.4.0.0/16",
        "E_REF_UNKNOWN routes.4.dev: no entry of this section is eth7",
      ],
      refused: ["routes.1.dest: is required"],
    },
    {
      name: "rules that cannot be",
      given: [
        {
          rules: [
            acl({ action: "forward" }),
            acl({ action: "dnat" }),
            acl({ action: "dnat", dnat: "10.0.0.1:99999" }),
            acl({ action: "teleport" }),
            acl({ action: "drop", source: "everybody" }),
            acl({ action: "accept", in: "eth9", iface: "eth8", dmac: "zz" }),
            acl({ action: "accept", in: "eth9", iface: "eth8" }),
          ],
        },
      ],
      rejected: [
        "E_REQUIRED rules.0.iface: is required with action forward, or vrf",
        "E_REQUIRED rules.1.dnat: is required with action dnat",
        "E_CIDR_INVALID rules.2.dnat: must be an IPv4 address, or one with a port such as 192.0.2.1:8080",
        "E_ENUM rules.3.action: must be one of accept, drop, reject, forward, dnat, mirror, log",
        "E_CIDR_INVALID rules.4.source: must be an IPv4 network, public or private",
        "E_ENUM rules.5.dmac: must be a MAC address such as 02:00:5e:00:53:01",
      ],
      notices: [
        "E_REF_UNKNOWN rules.6.in: no entry of this section is eth9",
        "E_REF_UNKNOWN rules.6.iface: no entry of this section is eth8",
      ],
      refused: [
        "rules.2.dnat: must be an IPv4 address, or one with a port such as 192.0.2.1:8080",
        "rules.3.action: must be one of accept, drop, reject, forward, dnat, mirror, log",
        "rules.4.source: must be an IPv4 network, public or private",
        "rules.5.dmac: must be a MAC address such as 02:00:5e:00:53:01",
      ],
    },
    {
      name: "what is no list",
      given: [{ vrfs: { a: 1 }, tunnels: 5, routes: "x", nats: {}, rules: 7 }],
      rejected: [
        "E_ENUM tunnels: must be an array",
        "E_ENUM vrfs: must be an array",
        "E_ENUM rules: must be an array",
        "E_ENUM routes: must be an array",
        "E_ENUM nats: must be an array",
      ],
      refused: [
        "tunnels: must be an array",
        "vrfs: must be an array",
        "routes: must be an array",
        "nats: must be an array",
        "rules: must be an array",
      ],
    },
    {
      name: "a feature that is not there",
      given: [
        {
          interfaces: [nic({ requires: ["warp"] })],
          routes: [{ dest: "10.1.0.0/16", via: "10.0.0.1", requires: ["warp"] }],
        },
      ],
      rejected: [
        "E_DEPENDENCY interfaces.0.requires: not supported: warp",
        "E_DEPENDENCY routes.0.requires: not supported: warp",
      ],
    },
  ]);
});

it("does not print an invalid secret", () => {
  const section = { tunnels: [ipsec({ psk: "hunter2".repeat(200) }), wg({ presharedKey: "hunter2" })] };
  const read = readNetwork(section, { nodeType: "Node", isMember: false });
  expect(read.rejected).toHaveLength(2);
  expect(JSON.stringify(read)).not.toContain("hunter2");
  expect(JSON.stringify(NetworkSection.safeParse(section))).not.toContain("hunter2");
});

describe("a skipped entry never allows more", () => {
  const acls = (list: unknown, isDefault: boolean): unknown => {
    const raw = isDefault ? { acls: list } : { vrfs: [{ name: "a", acls: list }] };
    const { config } = readNetwork(raw, { nodeType: "Node", isMember: false });
    return (isDefault ? config.routing : config.vrfs[0])?.acls;
  };
  const ALL = { protocol: "any", source: "0.0.0.0/0", dest: "0.0.0.0/0", action: "drop" };
  const allow = acl({ line: 20 });

  it.each([
    [
      "an unreadable match",
      acl({ action: "drop", line: 10, protocol: "sctp" }),
      { source: "10.0.0.0/8", dest: "10.0.0.0/8" },
    ],
    ["an unreadable source", acl({ action: "reject", line: 10, source: "lan" }), { dest: "10.0.0.0/8" }],
    ["an unknown action", acl({ action: "permit", line: 10 }), { source: "10.0.0.0/8", dest: "10.0.0.0/8" }],
    ["an unreadable line", acl({ action: "drop", line: "first" }), { source: "10.0.0.0/8", dest: "10.0.0.0/8" }],
    ["a feature that is not there", acl({ action: "drop", line: 10, requires: ["warp"], source: "x", dest: "y" }), {}],
  ])("an entry that denies, with %s, denies more", (_, entry, match) => {
    for (const isDefault of [true, false]) {
      expect(acls([allow, entry], isDefault)).toEqual([{ ...ALL, ...match }, allow]);
    }
  });

  it("an entry that allows is skipped, and nothing passes when it was the last", () => {
    expect(acls([allow, acl({ source: "x" })], true)).toEqual([allow]);
    expect(acls([acl({ source: "x" }), acl({ action: "accept", ports: "0" })], true)).toEqual([ALL]);
    expect(acls([acl({ source: "x" })], false)).toEqual([]);
  });

  it.each([[5], ["allow"], [Array.from({ length: 32_769 }, () => allow)]])(
    "a list that is malformed, or too long, lets nothing pass",
    (list) => {
      expect([acls(list, true), acls(list, false)]).toEqual([[ALL], []]);
    },
  );
});

it("leaves the document unchanged, whatever is corrected or skipped", () => {
  const raw = {
    interfaces: [{ ...nic(), description: 7, addIps: ["192.0.2.9/24", "none"] }],
    routes: [{ dest: "10.0.0.9/8", via: "192.0.2.1", metric: "7", description: 7 }],
    nats: [{ dest: "10.1.0.0/16", toDest: "10.2.0.0/16", source: "", uid: null }],
    rules: [{ ...acl(), ports: 443, line: 0 }],
  };
  const before = structuredClone(raw);
  const { config, rejected } = readNetwork(raw, { nodeType: "Node", isMember: false });
  expect(raw).toStrictEqual(before);
  expect(rejected.map(({ path }) => path)).toContain("network.routes.0.description");
  expect(config.interfaces[0]?.addIps).toStrictEqual(["192.0.2.9/24"]);
  expect(config.routing.routes).toStrictEqual([{ dest: "10.0.0.0/8", via: "192.0.2.1", metric: 7 }]);
  expect(config.routing.nats).toStrictEqual([{ dest: "10.1.0.0/16", toDest: "10.2.0.0/16", masquerade: false }]);
});
