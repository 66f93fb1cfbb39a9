import { describe, expect, test } from "vitest";
import type { Carrier } from "../../../../../src/agent/sections/network/actual.ts";
import type { Change } from "../../../../../src/host/network/change.ts";
import { EMPTY_RECORD } from "../../../../../src/host/network/state/record.ts";
import { aMachine, networkOver } from "../../../../support/network/network-section.ts";

const signal = new AbortController().signal;
const CARRIER: Carrier = { local: "198.51.100.10", remote: "203.0.113.9" };
const WAN = { nic: "eth0", ip: "198.51.100.10/24", gateway: "198.51.100.1" };

async function plan(
  raw: unknown,
  {
    carrier,
    model = aMachine(),
    role,
    wan,
    gateways,
    pathSources,
  }: {
    carrier?: Carrier;
    model?: ReturnType<typeof aMachine>;
    role?: "active" | "standby";
    wan?: string;
    gateways?: readonly string[];
    pathSources?: readonly string[];
  } = {},
) {
  const record = wan === undefined ? EMPTY_RECORD : { ...EMPTY_RECORD, wan };
  const section = networkOver(model, carrier, { record }, role, undefined, gateways, pathSources);
  const { desired } = section.parse(raw);
  const actual = await section.observe(signal, desired);
  const steps = section.plan(desired, actual);
  return {
    section,
    model,
    steps,
    waits: section.waits?.(desired, actual) ?? [],
    notices: section.notices?.(desired, actual) ?? [],
    details: steps.map((step) => section.describe?.(step, actual)),
    lines: steps.flatMap((step) => ("change" in step ? linesOf(step.change) : [])),
    text: steps
      .flatMap((step) => ("change" in step && step.change.kind === "nft" ? [step.change.text ?? ""] : []))
      .join(""),
  };
}

const linesOf = (change: Change): readonly string[] => (change.kind === "ip" ? change.lines : []);

test("packets from the local address of a path leave by the interface of that address, and not by the WAN", async () => {
  const second = { nic: "eth1", ip: "10.1.0.1/24", gateway: "10.1.0.254" };
  const raw = { interfaces: [WAN, second] };
  const apart = (lines: readonly string[]): readonly string[] => lines.filter((line) => /table 2000|rule/.test(line));
  expect(apart((await plan(raw)).lines)).toEqual([]);
  // The WAN's own address needs no rule.
  const { lines } = await plan(raw, { pathSources: ["10.1.0.1", WAN.ip.split("/", 1)[0] ?? "", "10.1.0.9"] });
  expect(apart(lines)).toEqual([
    "route prepend unreachable 0.0.0.0/0 metric 4278198272 table 200002 proto 218",
    "route prepend unicast 0.0.0.0/0 via 10.1.0.254 dev eth1 table 200002 proto 218 scope global",
    "rule add priority 5300 from 10.1.0.1/32 table 254 suppress_prefixlength 0 protocol 218",
    "rule add priority 5301 from 10.1.0.1/32 table 200002 protocol 218",
  ]);
});

test("accepts what the distribution has set in the same way", async () => {
  const { steps } = await plan({ interfaces: [WAN] });
  expect(steps).toEqual([]);
});

test("without the section and without anything of ours reads nothing", async () => {
  const { model, steps } = await plan(undefined);
  expect([model.observations, steps.length]).toEqual([0, 0]);
});

test("adds an address before it removes the one that this replaces", async () => {
  const { model, section } = await plan({ interfaces: [{ ...WAN, ip: "198.51.100.20/24" }] });
  const wanted = section.parse({ interfaces: [{ ...WAN, ip: "198.51.100.20/24" }] }).desired;
  for (const step of section.plan(wanted, await section.observe(signal, wanted))) await section.apply(step, signal);
  const other = section.parse({ interfaces: [{ ...WAN, ip: "198.51.100.21/24" }] }).desired;
  const held: number[] = [];
  model.onLine = () => held.push(model.addresses.filter(({ isOurs }) => isOurs).length);
  for (const step of section.plan(other, await section.observe(signal, other))) await section.apply(step, signal);
  expect(Math.min(...held)).toBeGreaterThan(0);
  expect(model.addresses.map(({ address }) => address)).toEqual(["198.51.100.10/24", "198.51.100.21/24"]);
});

test("the plan names packets and table of rules and of routes elsewhere", async () => {
  const rules = [{ protocol: "udp", source: "private", dest: "10.91.0.0/16", action: "forward", iface: "eth1" }];
  const { details } = await plan({ interfaces: [WAN, { nic: "eth1", ip: "10.1.0.1/24" }], rules });
  const text = details.find((detail) => detail?.includes("rule"));
  expect(text).toMatch(/0\.0\.0\.0\/0 on eth1 in table (\d+), unreachable 0\.0\.0\.0\/0 in table \1;/);
  expect(text).toMatch(/adds rule \d+ \(from all fwmark 0x\w+\/0x\w+ table \d+\)/);
});

test("a node that drops its traffic still sends packet-too-big, and drops forwarded packets", async () => {
  const { text } = await plan({ interfaces: [WAN], darkMode: true });
  expect(text).toContain("icmp type destination-unreachable icmp code != { frag-needed, admin-prohibited } drop");
  expect(text).toContain("rst == rst fib saddr type local drop");
});

test("forwarding that another program switches on is no change of the section's own", async () => {
  const { section, model } = await plan({ interfaces: [WAN] });
  const { desired } = section.parse({ interfaces: [WAN] });
  const before = await section.observe(signal, desired);
  model.sysctls.set("net.ipv4.ip_forward", "1");
  const actual = await section.observe(signal, desired);
  expect(section.plan(desired, actual).map(({ subject }) => subject)).toEqual(["firewall"]);
  expect(section.plan(desired, section.asSurrounded?.(actual, before) ?? actual)).toEqual([]);
});

describe("a plan that would cut off the machine", () => {
  const lost = {
    interfaces: [
      { nic: "eth1", ip: "10.1.0.1/24" },
      { ...WAN, gateway: "198.51.100.1" },
    ],
  };
  const cut = {
    interfaces: [{ nic: "eth1", ip: "10.1.0.1/24" }],
    routes: [{ dest: "203.0.113.0/24", dev: "eth1" }],
  };

  test("is refused as a whole, with the path of the mistake", async () => {
    const model = aMachine();
    model.addresses = [{ link: "eth0", address: "198.51.100.10/24", isOurs: true, isDynamic: false }];
    model.routes = model.routes.map((route) => ({ ...route, protocol: 218 }));
    const raw = { interfaces: [{ nic: "eth0", ip: "198.51.100.10/24" }] };
    const { steps, waits } = await plan(raw, { carrier: CARRIER, model });
    expect(steps).toEqual([]);
    expect(waits).toEqual([expect.objectContaining({ path: "network.interfaces.0", code: "cuts-off" })]);
  });

  test("is accepted while the target has another path", async () => {
    expect((await plan(lost, { carrier: CARRIER })).waits).toEqual([]);
    // A more specific route leads somewhere: the verification finds out whether anything answers.
    expect((await plan(cut, { carrier: CARRIER })).steps.length).toBeGreaterThan(0);
  });
});

describe("the WAN", () => {
  const lan = { nic: "eth1", ip: "10.1.0.1/24", gateway: "10.1.0.254", dns: ["10.1.0.53"] };
  const defaults = (lines: readonly string[]): readonly string[] =>
    lines.filter((line) => /unicast 0\.0\.0\.0\/0/.test(line));

  test.each([
    ["its gateway", WAN],
    ["DHCP", { nic: "eth0", dhcp: true }],
  ])("stays the WAN beside a LAN interface with name servers, by %s", async (_what, wan) => {
    for (const known of [{ wan: "eth0" }, { carrier: CARRIER }, {}]) {
      const { lines, notices } = await plan({ interfaces: [lan, wan] }, known);
      expect(defaults(lines)).toEqual([]);
      expect(notices).toMatchObject([{ path: "network.interfaces.0.dns", code: "not-the-wan" }]);
      expect(notices[0]?.message).toContain("remove it from eth0");
    }
  });

  test("stays the recorded one although the session leaves by another interface", async () => {
    const { lines } = await plan({ interfaces: [WAN, lan] }, { wan: "eth1", carrier: CARRIER });
    expect(defaults(lines)).toEqual([expect.stringContaining("via 10.1.0.254 dev eth1")]);
  });

  test.each([
    [
      "the only one with name servers",
      [{ ...WAN, gateway: undefined }, lan, { nic: "eth2", ip: "10.2.0.1/24", gateway: "10.2.0.9" }],
    ],
    [
      "the only one with a gateway",
      [
        { ...WAN, gateway: undefined },
        { ...lan, dns: [] },
      ],
    ],
  ])("moves when its own entry loses the gateway: %s", async (_what, interfaces) => {
    const { lines, notices } = await plan({ interfaces }, { wan: "eth0" });
    expect(defaults(lines)).toEqual([expect.stringContaining("via 10.1.0.254 dev eth1")]);
    expect(notices).toEqual([]);
  });

  test("does not move to a LAN interface with a gateway because its own entry is missing in the document", async () => {
    const { lines } = await plan({ interfaces: [{ ...lan, dns: [] }] }, { wan: "eth0" });
    expect(defaults(lines)).toEqual([]);
  });

  test.each([
    ["its gateway", WAN, 1],
    ["DHCP", { nic: "eth0", dhcp: true }, 0],
  ])("keeps its default route against one of a LAN interface or of the section, by %s", async (_what, wan, count) => {
    const model = aMachine();
    model.routes = [];
    const other = { nic: "eth1", ip: "10.1.0.1/24", routes: [{ route: "0.0.0.0/0", next: "10.1.0.254" }] };
    const routes = [{ dest: "0.0.0.0/0", dev: "eth1", via: "10.1.0.253" }];
    for (const interfaces of [
      [other, wan],
      [wan, other],
    ]) {
      const { lines, notices } = await plan({ interfaces, routes }, { wan: "eth0", model });
      expect(defaults(lines)).toHaveLength(count);
      expect(defaults(lines).join("\n")).not.toContain("eth1");
      const at = interfaces.indexOf(other);
      expect(notices).toMatchObject([
        { path: `network.interfaces.${at}.routes.0`, code: "default-route" },
        { path: "network.routes.0", code: "default-route" },
      ]);
    }
  });
});

describe("a route of a LAN interface", () => {
  const wan = { ...WAN, dns: ["10.9.0.53", "10.9.0.54"] };
  const lan = (route: string) => ({ nic: "eth1", ip: "10.1.0.1/24", routes: [{ route, next: "10.1.0.254" }] });
  const captures = (notices: readonly { readonly code: string; readonly message: string }[]): readonly string[] =>
    notices.flatMap(({ code, message }) => (code === "captures" ? [message] : []));

  test("is named when it captures the packets to the control plane, a name server or a gateway", async () => {
    const gateways = ["203.0.113.20", "192.0.2.1", "gateway.example"];
    const raw = { interfaces: [wan, lan("203.0.113.0/24"), { ...lan("10.0.0.0/8"), nic: "eth2", ip: "10.2.0.1/24" }] };
    const { notices } = await plan(raw, { carrier: CARRIER, gateways });
    expect(captures(notices)).toEqual([
      "network.interfaces.1.routes.0: 203.0.113.0/24 through eth1 also takes the packets to the control plane 203.0.113.9, the gateway 203.0.113.20, which would go through the WAN eth0 without it; if that is not reachable there, add routes to these addresses to eth0 with the next hop 198.51.100.1",
      expect.stringMatching(
        /interfaces\.2.*10\.0\.0\.0\/8 through eth2.*name server 10\.9\.0\.53, the name server 10\.9\.0\.54,/u,
      ),
    ]);
  });

  test("of the section captures as well, and those of both halves of all addresses", async () => {
    const routes = [{ dest: "128.0.0.0/1", dev: "eth1", via: "10.1.0.254" }];
    const { notices } = await plan({ interfaces: [WAN, lan("10.70.0.0/16")], routes }, { carrier: CARRIER });
    expect(captures(notices)).toEqual([expect.stringContaining("network.routes.0: 128.0.0.0/1 through eth1")]);
  });

  test.each<[string, object, Carrier]>([
    ["the route leads elsewhere", { interfaces: [WAN, lan("10.70.0.0/16")] }, CARRIER],
    ["the default route is refused", { interfaces: [WAN, lan("0.0.0.0/0")] }, CARRIER],
    [
      "a route of the WAN is more specific",
      { interfaces: [{ ...WAN, routes: [{ route: "203.0.113.9/32" }] }, lan("203.0.113.0/24")] },
      CARRIER,
    ],
    [
      "a subnet of the machine is more specific",
      { interfaces: [{ ...WAN, dns: ["10.1.0.53"] }, lan("10.0.0.0/8")] },
      CARRIER,
    ],
    [
      "the session leaves by that interface",
      { interfaces: [WAN, lan("203.0.113.0/24")] },
      { ...CARRIER, local: "10.1.0.1" },
    ],
  ])("is not named when %s", async (_what, raw, carrier) => {
    const model = aMachine();
    model.addresses.push({ link: "eth1", address: "10.1.0.1/24", isOurs: true, isDynamic: false });
    const { notices } = await plan(raw, { carrier, model, wan: "eth0" });
    expect(captures(notices)).toEqual([]);
  });
});

test("a destination of several routes has all of them, the first of the document before the others", async () => {
  const to = (nic: string, net: string) => ({
    nic,
    ip: `${net}.1/24`,
    routes: [{ route: "10.9.0.0/16", next: `${net}.9` }],
  });
  const { lines, notices } = await plan({
    interfaces: [WAN, to("eth1", "10.1.0"), to("eth2", "10.2.0")],
    routes: [
      { dest: "10.9.0.0/16", dev: "eth1", via: "10.1.0.8" },
      { dest: "10.9.0.0/16", dev: "eth1", via: "10.1.0.9", metric: 1 },
    ],
  });
  expect(lines.filter((line) => line.includes("10.9.0.0/16"))).toEqual([
    expect.stringContaining("via 10.1.0.9 dev eth1 table"),
    expect.stringContaining("via 10.2.0.9 dev eth2 metric 1 table"),
    expect.stringContaining("via 10.1.0.8 dev eth1 metric 2 table"),
    expect.stringContaining("via 10.1.0.9 dev eth1 metric 3 table"),
  ]);
  expect(notices.map(({ path, code }) => [path, code])).toEqual([
    ["network.interfaces.2.routes.0", "same-destination"],
    ["network.routes.0", "same-destination"],
    ["network.routes.1", "same-destination"],
  ]);
});

test.each([
  ["kvm", 1500],
  ["aws", 9000],
  ["azure", 9000],
  ["gcp", 1460],
])("an interface without an mtu has the default of its type: %s", async (vendor, mtu) => {
  const model = aMachine();
  model.links = model.links.map((link) => ({ ...link, mtu: 1400, ...(link.name === "eth2" ? { maxMtu: 1450 } : {}) }));
  const section = networkOver(model, undefined, undefined, undefined, vendor);
  const lan = { nic: "eth1", ip: "10.1.0.1/24" };
  const { desired } = section.parse({ interfaces: [WAN, { ...lan, mtu: 1300 }, { nic: "eth2", ip: "10.2.0.1/24" }] });
  for (const step of section.plan(desired, await section.observe(signal, desired))) await section.apply(step, signal);
  // At most what the driver supports.
  expect(model.links.map((link) => link.mtu)).toEqual([mtu, 1300, 1450]);
});

test("an interface on DHCP that leaves the section releases its lease and is switched off", async () => {
  const model = aMachine();
  const notes = { record: EMPTY_RECORD };
  const section = networkOver(model, CARRIER, notes);
  const reach = async (raw: unknown): Promise<void> => {
    const { desired } = section.parse(raw);
    for (const step of section.plan(desired, await section.observe(signal, desired))) await section.apply(step, signal);
  };
  await reach({ interfaces: [WAN, { nic: "eth1", dhcp: true }] });
  model.addresses.push({ link: "eth1", address: "10.1.0.77/24", isOurs: false, isDynamic: true });
  const leased = { table: 254, kind: "unicast", metric: 300, protocol: 16, scope: "link", isOnLink: false } as const;
  model.routes.push({ ...leased, destination: "10.1.0.0/24", link: "eth1", source: "10.1.0.77" });
  const states: boolean[] = [];
  model.onLine = (line) => void (line === "link set dev eth1 down" && states.push(model.dhcp.has("eth1")));
  await reach({ interfaces: [WAN] });
  expect(states).toEqual([false]);
  expect(model.links.find(({ name }) => name === "eth1")?.isUp).toBe(false);
});

describe("a lease", () => {
  const leased = (more: object = {}) => {
    const model = aMachine();
    model.addresses = [{ link: "eth0", address: "198.51.100.77/24", isOurs: false, isDynamic: true }];
    model.dhcp = new Set(["eth0"]);
    model.leases = { eth0: { router: "198.51.100.1", nameServers: ["198.51.100.53"] } };
    return Object.assign(model, more);
  };
  const of = (kind: Change["kind"], steps: Awaited<ReturnType<typeof plan>>["steps"]) =>
    steps.flatMap((step) => ("change" in step && step.change.kind === kind ? [step.change] : []));
  const wan = { nic: "eth0", dhcp: true };

  test.each([
    ["the WAN's without others in the document", wan, {}, [{ servers: ["198.51.100.53"] }]],
    ["of the document where it has some", { ...wan, dns: ["192.0.2.53"] }, {}, [{ servers: ["192.0.2.53"] }]],
    ["as they were until there is a lease", wan, { addresses: [], nameServers: ["192.0.2.53"] }, []],
    [
      "the system's where the lease names none",
      wan,
      { leases: {}, nameServers: ["192.0.2.53"] },
      [{ servers: undefined }],
    ],
    ["not those of another interface", { ...WAN, ip: "198.51.100.77/24" }, { nameServers: undefined }, []],
  ])("sets its name servers: %s", async (_which, nic, more, changes) => {
    const { steps } = await plan({ interfaces: [nic] }, { model: leased(more), wan: "eth0" });
    expect(of("resolver", steps)).toEqual(changes.map((change) => ({ kind: "resolver", ...change })));
  });

  test("with other name servers is no change of the section's own", async () => {
    const { section, model, steps } = await plan({ interfaces: [wan] }, { model: leased(), wan: "eth0" });
    for (const step of steps) await section.apply(step, signal);
    const { desired } = section.parse({ interfaces: [wan] });
    const before = await section.observe(signal, desired);
    expect(section.plan(desired, before).filter(({ kind }) => kind !== "forget")).toEqual([]);
    model.leases = { eth0: { nameServers: ["198.51.100.54"] } };
    const actual = await section.observe(signal, desired);
    expect(of("resolver", section.plan(desired, actual))).toMatchObject([{ servers: ["198.51.100.54"] }]);
    expect(of("resolver", section.plan(desired, section.asSurrounded?.(actual, before) ?? actual))).toEqual([]);
  });

  test.each([
    ["on a LAN interface", { nic: "eth1", dhcp: true }, [{ run: true, withoutGateway: true }]],
    ["on one whose entry names a gateway", { nic: "eth1", dhcp: true, gateway: "10.1.0.254" }, [{ run: true }]],
  ])("sets its default route as the entry says, %s", async (_where, nic, changes) => {
    const { steps } = await plan({ interfaces: [WAN, nic] });
    expect(of("dhcp", steps)).toEqual(changes.map((change) => ({ kind: "dhcp", link: "eth1", ...change })));
  });

  test("sets its default route on the WAN, and restarts a client that does otherwise", async () => {
    expect(of("dhcp", (await plan({ interfaces: [wan] }, { wan: "eth0" })).steps)).toEqual([
      { kind: "dhcp", link: "eth0", run: true },
    ]);
    const { steps, section, model } = await plan(
      { interfaces: [WAN, { nic: "eth1", dhcp: true }] },
      { model: Object.assign(aMachine(), { dhcp: new Set(["eth1"]) }) },
    );
    expect(of("dhcp", steps)).toEqual([
      { kind: "dhcp", link: "eth1", run: false },
      { kind: "dhcp", link: "eth1", run: true, withoutGateway: true },
    ]);
    const before = model.state();
    const actual = await section.observe(signal, section.parse({ interfaces: [WAN] }).desired);
    const undos = steps.flatMap((step) => section.undo(step, actual) ?? []);
    for (const step of steps) await section.apply(step, signal);
    expect(model.state().dhcpWithoutGateway).toEqual(["eth1"]);
    for (const undo of undos) await section.apply(undo, signal);
    expect(model.state().dhcpWithoutGateway).toBe(before.dhcpWithoutGateway);
  });

  test("is the next hop of routes although its default route is not used", async () => {
    const model = Object.assign(aMachine(), {
      dhcp: new Set(["eth1"]),
      dhcpWithoutGateway: ["eth1"],
      leases: { eth1: { router: "10.1.0.254", nameServers: [] } },
    });
    const { lines } = await plan(
      { interfaces: [WAN, { nic: "eth1", dhcp: true, routes: [{ route: "10.70.0.0/16" }] }] },
      { model },
    );
    expect(lines.filter((line) => line.includes("10.70.0.0/16"))).toEqual([
      expect.stringContaining("via 10.1.0.254 dev eth1"),
    ]);
  });
});

test("the WAN stays when its entry is removed, and other interfaces are switched off", async () => {
  const model = aMachine();
  const section = networkOver(model);
  const full = {
    interfaces: [
      { ...WAN, addIps: ["198.51.100.77/32"] },
      { nic: "eth1", ip: "10.1.0.1/24" },
    ],
  };
  for (const raw of [full, {}]) {
    const { desired } = section.parse(raw);
    for (const step of section.plan(desired, await section.observe(signal, desired))) await section.apply(step, signal);
  }
  expect(model.addresses.map(({ address }) => address)).toEqual(["198.51.100.10/24", "198.51.100.77/32"]);
  expect(model.links.map(({ name, isUp }) => [name, isUp])).toEqual([
    ["eth0", true],
    ["eth1", false],
    ["eth2", false],
  ]);
});

describe("a VRF without devices", () => {
  const raw = {
    interfaces: [
      WAN,
      { nic: "eth1", ip: "10.1.0.1/24", gateway: "10.1.0.254", vrf: "guest", routes: [{ route: "10.9.0.0/16" }] },
    ],
    vrfs: [{ name: "guest", forwarding: true }],
  };

  test("has a table that ends every lookup, and rules for its interfaces and addresses", async () => {
    const { lines } = await plan(raw);
    expect(lines).toEqual([
      "link set dev eth1 up",
      "address replace 10.1.0.1/24 brd + dev eth1 label eth1:hf noprefixroute",
      "route prepend unreachable 0.0.0.0/0 metric 4278198272 table 1000 proto 218",
      "route prepend unicast 10.1.0.0/24 dev eth1 table 1000 proto 218 scope link src 10.1.0.1",
      "route prepend unicast 10.9.0.0/16 via 10.1.0.254 dev eth1 table 1000 proto 218 scope global",
      "rule add priority 5500 from all iif eth1 table 1000 protocol 218",
      "rule add priority 5501 from all oif eth1 table 1000 protocol 218",
      "rule add priority 5502 from 10.1.0.1/32 table 1000 protocol 218",
    ]);
  });

  test("passes nothing without an ACL, and receives nothing for the addresses of others", async () => {
    const { text } = await plan(raw);
    expect(text).toContain('chain from_1000 {\nmeta mark and 0x0ff00000 == 0 oifname != { "eth1" } drop\ndrop\n}');
    expect(text).toContain('iifname { "eth1" } ip daddr != { 10.1.0.1 } fib daddr type local drop');
    expect(text).toContain('iifname { "eth0" } ip daddr { 10.1.0.1 } drop');
  });

  const inVrfs = (...interfaces: readonly object[]) => ({
    interfaces,
    vrfs: [{ name: "red" }, { name: "blue" }],
  });
  const red = { nic: "eth1", ip: "10.1.0.1/24", vrf: "red" };
  const blue = { nic: "eth2", ip: "10.1.0.2/24", vrf: "blue" };

  test.each([
    ["its own", inVrfs(WAN, red, { ...blue, ip: "10.1.0.1/24" }), "2", "1", "the VRF red", "10.1.0.1"],
    ["one more", inVrfs(WAN, red, { ...blue, addIps: ["10.1.0.1/32"] }), "2", "1", "the VRF red", "10.1.0.1"],
    [
      "the WAN's, which comes later",
      inVrfs({ ...red, ip: "198.51.100.10/24" }, WAN),
      "0",
      "1",
      "the default context",
      "198.51.100.10",
    ],
    [
      "a VLAN's",
      inVrfs(
        { ...WAN, subInterfaces: [{ vlanID: 5, ip: "10.1.0.2/24", vrf: "red" }] },
        { ...blue, subInterfaces: [{ vlanID: 6, ip: "10.8.0.1/24" }] },
      ),
      "1",
      "0.subInterfaces.0",
      "the VRF red",
      "10.1.0.2",
    ],
  ])(
    "an address that another context has keeps its interface down: %s",
    async (_what, section, at, other, where, address) => {
      const nic = section.interfaces.at(Number(at));
      const name = nic !== undefined && "nic" in nic ? String(nic.nic) : "";
      const { lines, waits } = await plan(section);
      expect(waits).toMatchObject([{ path: `network.interfaces.${at}`, code: "address-taken" }]);
      expect(waits[0]?.message).toContain(`${address} is held in ${where} by network.interfaces.${other},`);
      expect(lines.filter((line) => line.includes(name))).toEqual([]);
    },
  );

  test("does not create a VLAN with another context's address, and its interface stays", async () => {
    const vlan = { vlanID: 5, ip: "10.1.0.1/24", vrf: "blue" };
    const { lines, waits } = await plan(inVrfs(red, { ...WAN, subInterfaces: [vlan] }));
    expect(waits).toMatchObject([{ path: "network.interfaces.1.subInterfaces.0", code: "address-taken" }]);
    expect(lines.join("\n")).not.toContain("eth0");
    expect(lines.join("\n")).toContain("address replace 10.1.0.1/24 brd + dev eth1");
  });

  test("refuses the cluster's address before its role comes", async () => {
    const section = inVrfs(red, { ...blue, clusterIP: "10.1.0.1" });
    const { waits } = await plan(section, { role: "standby" });
    expect(waits).toMatchObject([{ path: "network.interfaces.1", code: "address-taken" }]);
  });

  test("accepts overlapping subnets, and an address twice in one context", async () => {
    expect((await plan(inVrfs(WAN, red, blue))).waits).toEqual([]);
    expect((await plan(inVrfs(WAN, red, { ...blue, ip: "10.1.0.1/32", vrf: "red" }))).waits).toEqual([]);
  });

  test("an interface of a missing VRF is kept down", async () => {
    const { lines } = await plan({ interfaces: [WAN, { nic: "eth1", ip: "10.1.0.1/24", vrf: "nowhere" }] });
    expect(lines).toEqual([]);
  });
});

test("ACLs are matched in the order of their line, and those without one after them", async () => {
  const acl = { protocol: "any", source: "10.0.0.0/8", dest: "0.0.0.0/0" };
  const { text } = await plan({
    interfaces: [WAN],
    forwarding: true,
    acls: [
      { ...acl, action: "allow" },
      { ...acl, protocol: "tcp", ports: "1-2", action: "drop", line: 7 },
      { ...acl, protocol: "udp", action: "reject", line: 3 },
    ],
  });
  expect(text).toContain(
    [
      "ip saddr 10.0.0.0/8 meta l4proto udp reject with icmpx admin-prohibited",
      "ip saddr 10.0.0.0/8 tcp dport 1-2 drop",
      "ip saddr 10.0.0.0/8 accept",
      "drop",
    ].join("\n"),
  );
});

test("of overlapping translations the first matches first, and each block of its length is one map", async () => {
  const { text } = await plan({
    interfaces: [WAN],
    nats: [
      { dest: "10.5.0.0/24", toDest: "10.6.0.0/24" },
      { dest: "10.7.0.0/24", toDest: "10.8.0.0/24" },
      { dest: "10.5.0.0/16", toDest: "10.9.0.0/16" },
      { source: "10.5.0.0/16", masquerade: true },
    ],
  });
  expect(text).toContain(
    '10.5.0.0/24 comment "default:0" : 10.6.0.0/24,\n10.7.0.0/24 comment "default:1" : 10.8.0.0/24',
  );
  expect(text).toContain(
    "chain dnat_254 {\ndnat ip prefix to ip daddr map @dnat_254_0\ndnat ip prefix to ip daddr map @dnat_254_1\n}",
  );
  expect(text).toContain("ip saddr @snat_254_2 masquerade");
});

test("translations of many blocks of one length are looked up by their network, and others by their block", async () => {
  const many = <T>(make: (at: number) => T): readonly T[] => Array.from({ length: 64 }, (_, at) => make(at));
  const { text } = await plan({
    interfaces: [WAN],
    nats: [
      ...many((at) => ({ dest: `10.5.${at}.0/24`, toDest: `10.6.${at}.0/24` })),
      ...many((at) => ({ dest: `10.7.0.${at}/32`, toDest: "10.8.0.1/32" })),
      ...many((at) => ({ source: `10.9.${at * 4}.0/22`, masquerade: true })).slice(1),
      { dest: "10.10.0.0/16", toDest: "10.11.0.0/16" },
      ...many((at) => ({ source: "10.12.0.0/16", dest: `10.13.${at * 2}.0/23`, toSource: "10.14.0.1/32" })),
    ],
  });
  const setOf = (name: string): string => new RegExp(`(?:map|set) ${name} \\{\n([^}]*)\\}`).exec(text)?.[1] ?? "";
  expect(setOf("dnat_254_0")).toContain(
    'type ipv4_addr : interval ipv4_addr\nsize 64\ncounter\nelements = {\n10.5.0.0 comment "default:0" : 10.6.0.0/24,\n',
  );
  expect(setOf("dnat_254_1")).toContain(
    '\nsize 64\ncounter\nelements = {\n10.7.0.0 comment "default:64" : 10.8.0.1/32,\n',
  );
  expect(setOf("dnat_254_2")).toContain("\nflags interval\ncounter\nelements = {\n10.10.0.0/16 comment");
  expect(text).toContain(
    [
      "chain dnat_254 {",
      "dnat ip prefix to ip daddr and 255.255.255.0 map @dnat_254_0",
      "dnat ip prefix to ip daddr map @dnat_254_1",
      "dnat ip prefix to ip daddr map @dnat_254_2",
      "}",
    ].join("\n"),
  );
  // One too few.
  expect(setOf("snat_254_4")).toContain("flags interval");
  expect(text).toContain("ip saddr @snat_254_4 masquerade");
  expect(text).toContain(
    "ip saddr 10.12.0.0/16 snat ip prefix to ct original ip daddr and 255.255.254.0 map @snat_254_3",
  );
});

test("a step lists what is added and removed, and counts long lists", async () => {
  const { details } = await plan({
    interfaces: [
      WAN,
      {
        nic: "eth1",
        ip: "10.1.0.1/24",
        routes: Array.from({ length: 9 }, (_, at) => ({ route: `10.${at + 20}.0.0/16`, next: "10.1.0.2" })),
      },
    ],
  });
  expect(details[0]).toContain("adds address 10.1.0.1/24 on eth1");
  expect(details[0]).toMatch(/adds route 10\.20\.0\.0\/16 via 10\.1\.0\.2 on eth1, .* and 5 more/);
});

test.each([
  ["active", ["10.0.0.1/24", "10.0.0.9/32", "10.1.0.1/24", "10.1.0.9/24"]],
  ["standby", ["10.0.0.1/24", "10.1.0.1/24"]],
] as const)("the %s member has its own addresses and the cluster's", async (role, addresses) => {
  const vlan = { vlanID: 10, ip: "10.1.0.1/24", clusterIPs: ["10.1.0.9/24"] };
  const lan = { nic: "eth1", ip: "10.0.0.1/24", clusterIP: "10.0.0.9", subInterfaces: [vlan] };
  const { lines } = await plan({ interfaces: [WAN, lan] }, { role });
  const added = lines.flatMap((line) => /^address replace (\S+)/.exec(line)?.[1] ?? []);
  expect(added.toSorted()).toEqual(addresses);
});

test("a WAN that keeps its address until there is a lease verifies nothing before, and other links do not count", async () => {
  const model = aMachine();
  const held = { address: "198.51.100.20/24", isOurs: true, isDynamic: false };
  model.addresses.push({ ...held, link: "eth0" }, { ...held, address: "10.0.0.1/24", link: "eth1" });
  const raw = {
    interfaces: [
      { nic: "eth0", dhcp: true },
      { nic: "eth1", dhcp: true },
    ],
  };
  const unproven = async (): Promise<unknown> => {
    const section = networkOver(model, CARRIER);
    const { desired } = section.parse(raw);
    return section.unproven?.(desired, await section.observe(signal, desired));
  };
  expect(await unproven()).toMatchObject([{ code: "no-lease", path: "network.interfaces.0" }]);
  model.addresses.push({ link: "eth0", address: "198.51.100.30/24", isOurs: false, isDynamic: true });
  expect(await unproven()).toEqual([]);
});

test("with VRF devices and VLANs the kernel separates contexts, without rules of ours", async () => {
  const model = aMachine();
  model.can = { ...model.can, vrf: true, vlan: true };
  const { lines, text } = await plan(
    {
      interfaces: [
        WAN,
        {
          nic: "eth1",
          ip: "10.1.0.1/24",
          gateway: "10.1.0.254",
          vrf: "guest",
          subInterfaces: [
            { vlanID: 10, ip: "10.8.0.1/24", vrf: "guest", routes: [{ route: "10.9.0.0/16", next: "10.8.0.9" }] },
          ],
        },
      ],
      vrfs: [
        {
          name: "guest",
          forwarding: true,
          routes: [{ dest: "10.33.0.0/16", via: "10.1.0.253", metric: 5 }],
          nats: [{ source: "10.1.0.0/24", masquerade: true }],
        },
      ],
    },
    { model },
  );
  expect(lines).toEqual([
    "link add name guest group 218 type vrf table 1000",
    "link property add dev guest altname holdfast:guest",
    "link add link eth1 name eth1.10 mtu 1500 group 218 type vlan id 10",
    "link property add dev eth1.10 altname holdfast:eth1.10",
    "link set dev guest up",
    "link set dev eth1 master guest up",
    "link set dev eth1.10 master guest up",
    "address replace 10.1.0.1/24 brd + dev eth1 label eth1:hf",
    "address replace 10.8.0.1/24 brd + dev eth1.10 label eth1.10:hf",
    "route prepend unreachable 0.0.0.0/0 metric 4278198272 table 1000 proto 218",
    "route prepend unicast 10.9.0.0/16 via 10.8.0.9 dev eth1.10 table 1000 proto 218 scope global",
    "route prepend unicast 10.33.0.0/16 via 10.1.0.253 dev eth1 metric 5 table 1000 proto 218 scope global",
  ]);
  // In the forward hook the kernel names the VRF's device for what comes in by it.
  expect(text).toContain('"guest" : goto from_1000');
  expect(text).not.toContain("fib daddr type local drop");
  expect(text).toContain('10.1.0.0/24 comment "guest:0"');
});

test("compiles 5,000 translations to text once for a document, and the text is stable", async () => {
  const nats = Array.from({ length: 5000 }, (_, at) => ({
    dest: `10.${at >> 8}.${at & 255}.0/24`,
    toDest: `11.${at >> 8}.${at & 255}.0/24`,
  }));
  const { steps, model, section, text } = await plan({ interfaces: [WAN], nats });
  expect(text.match(/ comment "default:\d+" : 11\./g)).toHaveLength(5000);
  for (const step of steps) await section.apply(step, signal);
  const { desired } = section.parse({ interfaces: [WAN], nats });
  expect(section.plan(desired, await section.observe(signal, desired))).toEqual([]);
  // Another list gives another text.
  const fewer = section.parse({ interfaces: [WAN], nats: nats.slice(1) }).desired;
  expect(section.plan(fewer, await section.observe(signal, fewer)).map(({ kind }) => kind)).toEqual(["nft"]);
  expect(model.firewall?.text).toBe(text);
});
