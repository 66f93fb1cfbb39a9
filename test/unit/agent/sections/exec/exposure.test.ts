import { describe, expect, it } from "vitest";
import {
  compileExposure,
  mappingName,
  placeObstacle,
  type ExposureSeen,
  type Placed,
  exposureTable,
} from "../../../../../src/agent/sections/exec/exposure.ts";
import { NOTHING_EXPOSED, planExposure } from "../../../../../src/agent/sections/exec/exposure-plan.ts";
import type { ExposureState } from "../../../../../src/host/exposure/driver.ts";
import { firewallDigest } from "../../../../../src/host/network/firewall/firewall.ts";
import type { ContainerSpec, PortMapping } from "../../../../../src/protocol/sections/exec/config.ts";
import { containerSpec } from "../../../../support/containers/container-spec.ts";

const BARE: ExposureState = {
  unusable: undefined,
  closed: undefined,
  firewall: undefined,
  userRules: [],
  mapped: [],
  hasNetwork: false,
  rules: [],
  routes: [],
  links: [],
};

const seen = (state: Partial<ExposureState> = {}, more: Partial<ExposureSeen> = {}): ExposureSeen => ({
  state: { ...BARE, ...state },
  bridge: "holdfast0",
  subnet: "172.18.0.0/16",
  addresses: new Map([
    ["eth0", ["10.0.0.1", "10.0.0.2"]],
    ["holdfast0", ["172.18.0.1"]],
    ["tun0", ["10.9.0.1"]],
  ]),
  listeners: () => [],
  vrfs: new Map([["red", 1000]]),
  ...more,
});

const mapping = (change: Partial<PortMapping> = {}): PortMapping => ({
  protocol: "tcp",
  iface: "eth0",
  hostPort: 8080,
  containerPort: 80,
  ...change,
});

const placed = (change: Partial<ContainerSpec> = {}, address = "172.18.0.16"): Placed => ({
  spec: containerSpec(change),
  address,
  engineId: "e1",
});

const codes = (waits: readonly { readonly code?: string }[]) => waits.map(({ code }) => code);

describe("ports", () => {
  it("are mapped by interface, and by address on the machine itself", () => {
    const { table, userRules, waits } = compileExposure([placed({ portMappings: [mapping()] })], seen());
    expect(table).toContain('"eth0" . tcp . 8080 : 172.18.0.16 . 80');
    expect(table).toContain("10.0.0.1 . tcp . 8080 : 172.18.0.16 . 80");
    expect(table).toContain("10.0.0.2 . tcp . 8080 : 172.18.0.16 . 80");
    expect(userRules).toStrictEqual(["-o holdfast0 -m conntrack --ctstate DNAT"]);
    expect(waits).toStrictEqual([]);
  });

  it("belong to the lowest id of those that want the same, in any order", () => {
    const a = placed({ id: "a", name: "one", portMappings: [mapping()] });
    const b = placed({ id: "b", name: "two", portMappings: [mapping(), mapping({ protocol: "udp" })] }, "172.18.0.17");
    for (const order of [
      [a, b],
      [b, a],
    ]) {
      const { ports, waits } = compileExposure(order, seen());
      expect(ports.map(mappingName)).toStrictEqual(["eth0 tcp 8080 172.18.0.16:80", "eth0 udp 8080 172.18.0.17:80"]);
      expect(waits.map(({ message }) => message)).toStrictEqual([
        "exec.commands[0].portMappings: two: tcp port 8080 on eth0 is mapped to one",
      ]);
    }
  });

  it.each([
    ["any address", undefined, "tcp", ["port-taken"]],
    ["an address of the interface", "10.0.0.2", "tcp", ["port-taken"]],
    ["another address", "127.0.0.1", "tcp", []],
    ["another protocol", undefined, "udp", []],
  ] as const)("remain with a program that listens on %s", (_, address, protocol, expected) => {
    const listeners = () => [{ address, protocol, port: 8080 }];
    const { ports, waits } = compileExposure([placed({ portMappings: [mapping()] })], seen({}, { listeners }));
    expect(codes(waits)).toStrictEqual(expected);
    expect(ports).toHaveLength(1 - expected.length);
  });

  it("stay applied without another check for listeners", () => {
    const listeners = () => {
      throw new Error("looked");
    };
    const state = { mapped: ["eth0 tcp 8080 172.18.0.99:80"] };
    const { ports } = compileExposure([placed({ portMappings: [mapping()] })], seen(state, { listeners }));
    expect(ports).toHaveLength(1);
  });

  it("of an interface without an address are mapped, and reported as inactive", () => {
    const { ports, waits, table } = compileExposure(
      [placed({ portMappings: [mapping({ iface: "eth9" }), mapping({ iface: "lo" })] })],
      seen(),
    );
    expect(codes(waits)).toStrictEqual(["no-address", "unsupported"]);
    expect(ports).toHaveLength(1);
    expect(table).not.toContain("from_here");
  });

  it("are published by the engine when the firewall is not ours", () => {
    const state = seen({ unusable: "nft is not installed" });
    const target = compileExposure([placed({ portMappings: [mapping()] })], state);
    expect(target.table).toBeUndefined();
    expect(planExposure(target, state)).toStrictEqual([]);
  });
});

describe("VRFs", () => {
  it("take all that a container sends", () => {
    const { rules, routes } = compileExposure([placed({ vrf: "red" })], seen());
    expect(rules).toStrictEqual([
      "priority 5110 from 172.18.0.16 lookup 1000",
      "priority 5111 from 172.18.0.16 unreachable",
    ]);
    expect(routes).toStrictEqual(["172.18.0.0/16 dev holdfast0 scope link table 1000"]);
  });

  it("that are not set up pass nothing", () => {
    const { rules, routes } = compileExposure([placed({ vrf: "blue" })], seen());
    expect(rules).toStrictEqual(["priority 5111 from 172.18.0.16 unreachable"]);
    expect(routes).toStrictEqual([]);
  });

  it("have no route to a bridge that does not exist yet", () => {
    expect(compileExposure([placed({ vrf: "red" })], seen({}, { addresses: new Map() })).routes).toStrictEqual([]);
  });
});

describe("interfaces", () => {
  const handed = placed({ interfaces: [{ name: "tun0", dest: { address: "10.200.0.1" } }] });

  it("are moved by a link of the running container", () => {
    const { links, rules, routes, userRules } = compileExposure([handed], seen());
    const [link] = links;
    expect(link).toMatchObject({ inside: "eth1", address: "10.200.0.1", engineId: "e1" });
    expect(link?.link).toMatch(/^hfc[0-9a-f]{12}$/);
    expect(rules).toStrictEqual([expect.stringMatching(/^priority 5150 iif tun0 lookup \d+$/)]);
    expect(userRules).toStrictEqual(["-o hfc+"]);
    // Its route comes with the link, and is checked once that exists.
    expect(routes).toStrictEqual([]);
    const later = compileExposure([handed], seen({ links: [link?.link ?? ""] }));
    expect(later.routes).toStrictEqual([link?.route]);
    const next = compileExposure([{ ...handed, engineId: "e2" }], seen());
    expect(next.links[0]?.link).not.toBe(link?.link);
  });

  it("wait for the container, the interface, and the permission", () => {
    expect(compileExposure([{ ...handed, engineId: undefined }], seen())).toMatchObject({ links: [], waits: [] });
    const other = placed({ interfaces: [{ name: "tun9", dest: { link: "eth5" } }] });
    expect(codes(compileExposure([other], seen()).waits)).toStrictEqual(["no-address"]);
    const closed = compileExposure([handed], seen({ closed: "not permitted" }));
    expect(closed.links).toStrictEqual([]);
    expect(codes(closed.waits)).toStrictEqual(["unsupported"]);
  });
});

it("reports that virtual networks are unsupported", () => {
  const use = { network: "core", ip: "172.21.0.10", allowOutbound: false };
  expect(compileExposure([placed({ virtualNetworks: [use] })], seen()).waits).toMatchObject([
    { code: "unsupported", path: "exec.commands[0].virtualNetworks" },
  ]);
});

describe("steps", () => {
  it("are none if nothing is wanted and nothing exists, or if all is as wanted", () => {
    expect(planExposure(NOTHING_EXPOSED, seen())).toStrictEqual([]);
    const all = [placed({ portMappings: [mapping()], vrf: "red" })];
    const { table = "", rules, routes, userRules } = compileExposure(all, seen());
    const firewall = { digest: firewallDigest(table), text: "" };
    const there = seen({ firewall, rules, routes, userRules, mapped: ["eth0 tcp 8080 172.18.0.16:80"] });
    expect(planExposure(compileExposure(all, there), there)).toStrictEqual([]);
    const unlisted = seen({ ...there.state, userRules: undefined });
    expect(planExposure(compileExposure(all, unlisted), unlisted)).toStrictEqual([]);
  });

  it.each([
    ["a table that somebody changed", { firewall: { digest: "", text: "x" } }],
    ["a rule that is gone from the engine's chain", { userRules: [] }],
  ])("repair %s", (_, change) => {
    const all = [placed({ portMappings: [mapping()] })];
    const { table = "", userRules } = compileExposure(all, seen());
    const there = seen({
      firewall: { digest: firewallDigest(table), text: "" },
      userRules,
      mapped: ["eth0 tcp 8080 172.18.0.16:80"],
      ...change,
    });
    expect(planExposure(compileExposure(all, there), there)).toMatchObject([
      { kind: "map ports", guarded: false, change: { is: "ports", text: table, ended: [] } },
    ]);
  });

  it("end the flows of what is removed, and of new UDP mappings", () => {
    const there = seen({ mapped: ["eth0 tcp 80 172.18.0.16:80"] });
    const all = [placed({ portMappings: [mapping(), mapping({ protocol: "udp", hostPort: 53 })] })];
    const [step] = planExposure(compileExposure(all, there), there);
    expect(step).toMatchObject({
      change: {
        ended: [
          { protocol: "tcp", dest: "10.0.0.1", destPort: 80 },
          { protocol: "tcp", dest: "10.0.0.2", destPort: 80 },
          { protocol: "udp", dest: "10.0.0.1", destPort: 53 },
          { protocol: "udp", dest: "10.0.0.2", destPort: 53 },
        ],
      },
      detail:
        "− tcp port 80 on eth0 → 172.18.0.16:80, + tcp port 8080 on eth0 → 172.18.0.16:80, + udp port 53 on eth0 → 172.18.0.16:80",
    });
  });

  it("remove everything when nothing is wanted", () => {
    const there = seen({
      firewall: { digest: "d", text: "" },
      userRules: ["-o hfc+"],
      rules: ["priority 5111 from 172.18.0.16 unreachable"],
      links: ["hfc0123456789ab"],
    });
    expect(planExposure(NOTHING_EXPOSED, there)).toMatchObject([
      { kind: "route containers", change: { added: { rules: [] }, removed: { rules: [there.state.rules[0]] } } },
      { kind: "map ports", change: { text: undefined, userRules: [], mapped: [] } },
      { kind: "detach interface", subject: "hfc0123456789ab" },
    ]);
  });
});

describe("a container is kept from starting", () => {
  const place = { reserved: new Set(["172.18.0.1"]), isInside: (ip: string) => ip.startsWith("172.18.") };
  it.each([
    ["outside of the bridge", { ip: "10.0.0.1" }, /not a container address/],
    ["at the node's own address", { ip: "172.18.0.1" }, /reserved for the node/],
    ["at another's address", { ip: "172.18.0.5" }, /is used by other/],
    ["in a VRF that is not set up", { vrf: "blue" }, /VRF blue is not set up/],
    ["in one that is", { vrf: "red" }, undefined],
    ["at an address of its own", { ip: "172.18.0.6" }, undefined],
  ])("%s", (_, change, expected) => {
    const spec = containerSpec({ id: "b", ...change });
    const other = { id: "a", name: "other", ip: "172.18.0.5" };
    const output = placeObstacle(spec, [spec, other], place, new Map([["red", 1000]]));
    if (expected === undefined) expect(output).toBeUndefined();
    else expect(output).toMatch(expected);
  });
});

it("no ports give no table", () => {
  expect(exposureTable([], new Map())).toBeUndefined();
});
