import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { describeIssues } from "../../../../../src/protocol/channel/envelope.ts";
import { OverlayListener } from "../../../../../src/protocol/overlay/overlay.ts";
import {
  ConnectorItem,
  ConnectorsSection,
  normaliseConnectors,
  parseSourceBlock,
} from "../../../../../src/protocol/sections/connectors/connectors.ts";
import { upgradeToV2 } from "../../../../../src/protocol/sections/common/forms.ts";
import type { NodeType } from "../../../../../src/protocol/values/values.ts";
import { nearValidValues, validValues, withUnknownFields } from "../../../../support/arbitrary.ts";
import { runs } from "../../../../support/sample.ts";

const A = "6f0d2c1e-0a55-4d5c-9a5e-3c8f0a7b1d01";
const B = "6f0d2c1e-0a55-4d5c-9a5e-3c8f0a7b1d02";
const web = { node: "local", service: "web", protocol: "tcp", port: 8080 };

const v2 = (...items: readonly unknown[]) => ({
  version: 2,
  items: Object.fromEntries(items.map((item, at) => [`id-${at}`, item])),
});
const normalise = (raw: unknown, nodeType: NodeType = "Node") => normaliseConnectors(raw, { nodeType });
const tagged = ({ code, message }: { code: string; message: string }) => `${code} ${message}`;

describe("a stored connector", () => {
  it("gets its defaults", () => {
    expect(normalise(v2(web))).toEqual({
      enabled: true,
      rejected: [],
      notices: [],
      items: [
        {
          id: "id-0",
          path: "connectors.items.id-0",
          index: 0,
          enabled: true,
          node: "local",
          target: { service: "web" },
          protocol: "tcp",
          transport: "tcp",
          port: 8080,
          listen: { at: "any" },
          maxFlows: 10_000,
          idleTimeoutMs: 900_000,
          description: "",
        },
      ],
    });
  });

  it.each([
    [
      "numbers as text",
      { port: "80", maxmbps: "2.5", maxConnections: "7" },
      { port: 80, bitsPerSecond: 2_500_000, maxFlows: 7 },
    ],
    ["empty texts", { nic: "", localIp: "", maxmbps: "", sourceBlock: "" }, { listen: { at: "any" } }],
    ["the interface any", { nic: "any" }, { listen: { at: "any" } }],
    ["an interface", { nic: "ens192.30" }, { listen: { at: "nic", nic: "ens192.30" } }],
    ["an address", { localIp: "10.0.0.1" }, { listen: { at: "address", address: "10.0.0.1" } }],
    [
      "an address below multicast",
      { localIp: "223.255.255.255" },
      { listen: { at: "address", address: "223.255.255.255" } },
    ],
    ["both", { nic: "eth0", localIp: "10.0.0.1" }, { listen: { at: "address", address: "10.0.0.1" } }],
    ["every address", { nic: "eth0", localIp: "0.0.0.0" }, { listen: { at: "any" } }],
    ["a literal target", { service: "10.9.0.15:514" }, { target: { host: "10.9.0.15", port: 514 } }],
    ["a trickle", { maxmbps: 1e-9 }, { bitsPerSecond: 1 }],
    ["a rate with decimals", { maxmbps: 2.5 }, { bitsPerSecond: 2_500_000 }],
    ["udp", { protocol: "udp" }, { transport: "udp", maxFlows: 1024, idleTimeoutMs: 60_000 }],
    ["rdp", { protocol: "rdp" }, { transport: "tcp" }],
    ["ftp", { protocol: "ftp" }, { transport: "tcp", protocol: "ftp" }],
    ["tftp", { protocol: "tftp" }, { transport: "udp", protocol: "tftp", idleTimeoutMs: 60_000 }],
    ["an old name", { node: "Branch-B" }, { node: "Branch-B" }],
    ["a full name", { node: "branch-b.example.net" }, { node: "branch-b.example.net" }],
    ["a uid", { node: A }, { node: A }],
    [
      "sources",
      { sourceBlock: "192.168.10.0/24, 10.1.2.3,10.1.2.3/32" },
      { sources: ["192.168.10.0/24", "10.1.2.3/32"] },
    ],
  ])("is accepted with %s", (_, change, expected) => {
    const { items, rejected, notices } = normalise(v2({ ...web, ...change }));
    expect([rejected, notices]).toEqual([[], []]);
    expect(items).toMatchObject([expected]);
  });

  it("without a rate limit has none, and without sources admits everybody", () => {
    const [item] = normalise(v2({ ...web, maxmbps: 0, sourceBlock: null })).items;
    expect(item).not.toHaveProperty("bitsPerSecond");
    expect(item).not.toHaveProperty("sources");
  });

  it.each([
    ["no node", { node: "" }, "E_REQUIRED", "node: is required"],
    ["an odd node", { node: "a b" }, "E_NAME_FORMAT", "node: must be the name of a node or a cluster, or local"],
    ["no service", { service: null }, "E_REQUIRED", "service: is required"],
    ["an odd service", { service: "a_b" }, "E_NAME_FORMAT", "service: must be the name of a service, or IPv4:port"],
    ["a bare address", { service: "10.0.0.1" }, "E_NAME_FORMAT", "service: must be"],
    ["half a literal", { service: "10.0.0.256:80" }, "E_NAME_FORMAT", "service: must be"],
    ["port 0 of a literal", { service: "10.0.0.1:0" }, "E_NAME_FORMAT", "service: must be"],
    ["port 65536 of a literal", { service: "10.0.0.1:65536" }, "E_NAME_FORMAT", "service: must be"],
    ["an IPv6 literal", { service: "[::1]:80" }, "E_NAME_FORMAT", "service: must be"],
    ["port 65536", { port: 65_536 }, "E_PORT_RANGE", "port: must be 1..65535"],
    ["a port below", { port: "-1" }, "E_PORT_RANGE", "port: is text, and must be a whole number, 1..65535"],
    [
      "https",
      { protocol: "https" },
      "E_UNSUPPORTED_PROTOCOL",
      "protocol: https belonged to remote-access applications",
    ],
    ["a protocol in capitals", { protocol: "TCP" }, "E_ENUM", "protocol: must be one of tcp"],
    ["an odd interface", { nic: "a/b" }, "E_NAME_FORMAT", "nic: not the name of a network interface"],
    ["an IPv6 address", { localIp: "::1" }, "E_CIDR_INVALID", "localIp: must be an IPv4 address"],
    ["a multicast address", { localIp: "224.0.0.1" }, "E_CIDR_INVALID", "localIp: 224.0.0.1 is a multicast address"],
    ["the last multicast address", { localIp: "239.255.255.255" }, "E_CIDR_INVALID", "localIp: 239.255.255.255 is a"],
    [
      "the broadcast address",
      { localIp: "255.255.255.255" },
      "E_CIDR_INVALID",
      "localIp: 255.255.255.255 is the broadcast address; must be an address of the node, or 0.0.0.0 for all",
    ],
    [
      "an address of no machine",
      { localIp: "0.1.2.3" },
      "E_CIDR_INVALID",
      "localIp: 0.1.2.3 is no address of a machine",
    ],
    ["a rate below zero", { maxmbps: -1 }, "E_RANGE", "maxmbps: must be a number, 0..1000000"],
    ["an endless rate", { maxmbps: Infinity }, "E_RANGE", "maxmbps: must be"],
    ["no flow at all", { maxConnections: 0 }, "E_RANGE", "maxConnections: must be a whole number, 1..1000000"],
    ["an odd source", { sourceBlock: "10.0.0.0/33" }, "E_CIDR_INVALID", "sourceBlock: must be CIDRs divided by commas"],
    ["sources that were lost", { sourceBlock: "," }, "E_CIDR_INVALID", "sourceBlock: must be CIDRs"],
    [
      "sources that are IPv6 alone",
      { sourceBlock: "2001:db8::/32" },
      "E_CIDR_INVALID",
      "sourceBlock: 2001:db8::/32 is IPv6, and connectors listen on IPv4: nobody could connect",
    ],
    ["blank sources", { sourceBlock: " " }, "E_CIDR_INVALID", "sourceBlock: must be CIDRs"],
    ["a list of sources", { sourceBlock: ["10.0.0.0/8"] }, "E_CIDR_INVALID", "sourceBlock: must be text"],
    ["a needed feature", { requires: ["quantum"] }, "E_DEPENDENCY", "requires: not supported: quantum"],
  ])("is rejected with %s, and the next one is not", (_, change, code, text) => {
    const { items, rejected } = normalise(v2({ ...web, ...change }, { ...web, port: 9 }));
    expect(rejected.map(tagged)[0]).toContain(`${code} connectors.items.id-0.${text}`);
    expect(rejected).toHaveLength(1);
    expect(items.map(({ port }) => port)).toEqual([9]);
  });

  it("keeps and notes fields that are not served as written", () => {
    const raw = v2({ ...web, sourceBlock: "10.1.2.3/8,2001:db8::/32" });
    const { items, rejected, notices } = normalise(raw);
    expect(rejected).toEqual([]);
    expect(items[0]?.sources).toEqual(["10.0.0.0/8"]);
    expect(notices.map(tagged)).toEqual([
      "E_CIDR_HOSTBITS connectors.items.id-0.sourceBlock: host bits are masked away",
      "E_UNSUPPORTED connectors.items.id-0.sourceBlock: 2001:db8::/32 is ignored: it is IPv6, and connectors listen on IPv4",
    ]);
  });

  it("does not filter sources on an agent", () => {
    const { items, rejected, notices } = normalise(
      v2({ ...web, sourceBlock: "nonsense" }, { ...web, port: 9 }),
      "Agent",
    );
    expect(rejected).toEqual([]);
    expect(items[0]).not.toHaveProperty("sources");
    expect(notices.map(tagged)).toEqual([
      "E_UNSUPPORTED_ON_AGENT connectors.items.id-0.sourceBlock: ignored: agents do not filter sources",
    ]);
  });
});

describe("two connectors on one port", () => {
  const nic = { nic: "eth0" };
  const ip = { localIp: "10.0.0.1" };
  it.each([
    ["everywhere", {}, {}, true],
    ["everywhere and on an interface", {}, nic, true],
    ["on an interface and everywhere", nic, {}, true],
    ["on an address and everywhere", ip, { nic: "any" }, true],
    ["on one interface", nic, nic, true],
    ["on one address, by way of two interfaces", { ...ip, ...nic }, { ...ip, nic: "eth1" }, true],
    ["on two interfaces", nic, { nic: "eth1" }, false],
    ["on an interface and an address", nic, ip, false],
    ["by tcp and udp", {}, { protocol: "udp" }, false],
    ["by tcp and ssh", {}, { protocol: "ssh" }, true],
    ["by udp and tftp", { protocol: "udp" }, { protocol: "tftp" }, true],
    ["one of which is off", { enabled: false }, {}, false],
    ["the later of which is off", {}, { enabled: false }, false],
    ["with another port", {}, { port: 8081 }, false],
  ])("%s", (_, first, second, collide) => {
    const { items, rejected, notices } = normalise(v2({ ...web, ...first }, { ...web, ...second }));
    expect(items).toHaveLength(collide ? 1 : 2);
    const transport = "protocol" in first ? "udp" : "tcp";
    const place =
      "localIp" in second ? "10.0.0.1" : "nic" in second && second.nic !== "any" ? second.nic : "any address";
    const message = `connectors.items.id-1.port: ${transport} 8080 on ${place} is taken by the connector id-0`;
    expect(rejected).toMatchObject(collide ? [{ id: "id-1", code: "E_PORT_IN_USE", other: "id-0", message }] : []);
    expect(notices).toHaveLength("protocol" in second && second.protocol === "tftp" && !collide ? 1 : 0);
  });

  it("are ordered by index, then by id, and the loser blocks nothing", () => {
    const raw = {
      items: {
        c: { ...web, index: 0, nic: "eth0" },
        b: { ...web, index: 1 },
        a: { ...web, index: 1, nic: "eth1" },
        d: { ...web, index: 2, nic: "eth1" },
      },
    };
    const { items, rejected } = normalise(raw);
    expect(items.map(({ id }) => id)).toEqual(["c", "a"]);
    expect(rejected.map(({ id, other }) => [id, other])).toEqual([
      ["b", "c"],
      ["d", "a"],
    ]);
  });

  it("conflict in a disabled section, too", () => {
    const { items, rejected } = normalise({ enabled: false, connectors: [web, web] });
    expect([items.length, items[0]?.enabled, rejected.length]).toEqual([1, false, 1]);
  });
});

describe("the schema of the API", () => {
  const lines = (value: unknown) => {
    const parsed = ConnectorsSection.safeParse(value);
    return parsed.success ? parsed.data : describeIssues(parsed.error, "connectors");
  };

  it("accepts both forms unchanged", () => {
    for (const section of [
      {},
      { connectors: [{ ...web, id: A, description: "", sourceBlock: "10.0.0.0/8" }] },
      { version: 2, items: { [A]: { ...web, nic: "eth0", later: [1] }, [B]: { ...web, nic: "eth1" } } },
    ]) {
      expect(lines(section)).toEqual(section);
    }
  });

  it.each([
    [{ connectors: [{ ...web, id: "one" }] }, ["connectors.connectors.0.id: must be a UUID"]],
    [{ version: 2, items: { [A]: { ...web, port: 0 } } }, [`connectors.items.${A}.port: must be 1..65535`]],
    [
      { version: 2, items: { [A]: { ...web, port: "80" } } },
      [`connectors.items.${A}.port: is text, and must be a whole number, 1..65535`],
    ],
    [
      { version: 2, items: { [A]: web, [B]: web } },
      [`connectors.items.${B}.port: tcp 8080 on any address is taken by the connector ${A}`],
    ],
    [
      { version: 2, items: { [A]: { ...web, localIp: "0.0.0.1" } } },
      [
        `connectors.items.${A}.localIp: 0.0.0.1 is no address of a machine; must be an address of the node, or 0.0.0.0 for all`,
      ],
    ],
    [{ version: 2, items: { [A]: 1 } }, [`connectors.items.${A}: must be an object`]],
  ])("refuses %j", (section, expected) => {
    expect(lines(section)).toEqual(expected);
  });
});

describe("values derived from the schema", () => {
  it("that the API accepts are accepted by the node and fit the overlay's table", () => {
    fc.assert(
      fc.property(validValues(ConnectorItem), (value) => {
        const { requires: _, ...item } = ConnectorItem.parse(withUnknownFields(ConnectorItem, value));
        const { items, rejected } = normalise(v2(item));
        expect(rejected).toEqual([]);
        const { id, transport, port, target, sources, bitsPerSecond, maxFlows, idleTimeoutMs } = items[0] ?? {};
        const entry = { key: "k", connector: id, protocol: transport, addresses: ["::"], port, target, sources };
        expect(OverlayListener.safeParse({ ...entry, bitsPerSecond, maxFlows, idleTimeoutMs }).error).toBeUndefined();
      }),
      { numRuns: runs(200) },
    );
  });

  it("nearly valid never end as a fault, are named by path, and leave the others alone", () => {
    fc.assert(
      fc.property(nearValidValues(ConnectorItem), fc.constantFrom<NodeType>("Node", "Agent"), ({ value }, type) => {
        const first = { ...web, nic: "mine0", index: 0 };
        const { items, rejected } = normalise(v2(first, value), type);
        expect(items.some(({ listen }) => listen.at === "nic" && listen.nic === "mine0") || rejected.length > 0).toBe(
          true,
        );
        for (const { path, message } of rejected) {
          expect(path.startsWith("connectors.items.id-")).toBe(true);
          expect(message.startsWith(`${path}: `)).toBe(true);
          expect(message.length).toBeLessThan(1024);
        }
        expect(items.length === 2).toBe(rejected.length === 0);
      }),
      { numRuns: runs(300) },
    );
  });

  it("nearly valid as a whole section are refused with a path, or accepted by the node as well", () => {
    fc.assert(
      fc.property(nearValidValues(ConnectorsSection), ({ value }) => {
        const parsed = ConnectorsSection.safeParse(value);
        const { rejected } = normalise(value);
        if (parsed.success) expect(rejected.filter(({ code }) => code !== "E_DEPENDENCY")).toEqual([]);
        else for (const line of describeIssues(parsed.error, "connectors")) expect(line).toMatch(/^connectors[.:]/);
      }),
      { numRuns: runs(300) },
    );
  });

  it("survive the upgrade with their content", () => {
    const list = fc.array(validValues(ConnectorItem));
    fc.assert(
      fc.property(list, (connectors) => {
        let at = 0;
        const legacy = { connectors: connectors.map((item, place) => Object.assign({}, item, { id: `v1-${place}` })) };
        const before = normalise(legacy);
        const after = normalise(upgradeToV2("connectors", legacy, () => `v2-${String((at += 1))}`));
        const content = ({ items }: typeof before) => items.map((item) => ({ ...item, id: "", path: "" }));
        expect(content(after)).toEqual(content(before));
      }),
    );
  });
});

describe("a source block", () => {
  it("is bounded, without repetition", () => {
    const block = (count: number) => Array.from({ length: count }, (_, at) => `10.0.${at >> 8}.${at & 255}`).join(",");
    expect(parseSourceBlock(block(1024))?.cidrs).toHaveLength(1024);
    expect(parseSourceBlock(block(1025))).toBeUndefined();
    expect(parseSourceBlock("10.0.0.1/8,10.9.9.9/8,10.0.0.0/8")).toEqual({
      cidrs: ["10.0.0.0/8"],
      ipv6: [],
      hadHostBits: true,
    });
  });
});
