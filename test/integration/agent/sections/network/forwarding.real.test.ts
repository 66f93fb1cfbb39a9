import { expect, test } from "vitest";
import { EMPTY_RECORD } from "../../../../../src/host/network/state/record.ts";
import { networkMachineInTurn, type NetworkMachine } from "../../../../support/network/network-machine.ts";
import { converge, sectionOver, stepsOf } from "../../../../support/network/real-network.ts";
import { tempDir } from "../../../../support/temp-dir.ts";

const networkMachine = networkMachineInTurn();

/** A router with a host behind each of its links; the machine forwards nothing by default. */
const machineWith = (links: readonly string[]): Promise<NetworkMachine> =>
  networkMachine(
    tempDir(),
    {},
    [
      "echo 0 > /proc/sys/net/ipv4/ip_forward",
      ...links.flatMap((link, at) => [
        `ip netns add h${at}`,
        `ip link add ${link} type veth peer name eth0 netns h${at}`,
        `ip address add 10.${at}.0.1/24 dev ${link}`,
        `ip link set ${link} up`,
        `ip -n h${at} link set eth0 up`,
        `ip -n h${at} address add 10.${at}.0.9/24 dev eth0`,
        `ip -n h${at} route add default via 10.${at}.0.1`,
      ]),
    ].join("\n"),
  );

/** Reports whether a host reaches another through the router. */
const passes = (machine: NetworkMachine, from: number, to: number): boolean =>
  machine.sh(`ip netns exec h${from} ping -c 1 -W 1 10.${to}.0.9 || true`).includes(" 0% packet loss");

test("forwards between interfaces outside the section only as the section allows", async () => {
  const bridge = "br-0123456789ab";
  const machine = await machineWith(["wan0", "wg0", bridge, "br-lan"]);
  const section = sectionOver(machine, { record: EMPTY_RECORD });
  const vrfs = [{ name: "red", forwarding: true }];
  await converge(section, { vrfs });
  expect(machine.sh("cat /proc/sys/net/ipv4/ip_forward").trim()).toBe("1");
  expect([passes(machine, 0, 1), passes(machine, 1, 3)]).toEqual([false, false]);
  // The engine filters the traffic of its containers.
  expect([passes(machine, 2, 0), passes(machine, 1, 2)]).toEqual([true, true]);

  await converge(section, { vrfs, forwarding: true });
  expect([passes(machine, 0, 1), passes(machine, 1, 3)]).toEqual([true, true]);

  const acl = { protocol: "any", source: "0.0.0.0/0", dest: "10.3.0.0/24", action: "drop" };
  await converge(section, { vrfs, forwarding: true, acls: [acl, { ...acl, dest: "0.0.0.0/0", action: "allow" }] });
  expect([passes(machine, 0, 1), passes(machine, 1, 3), passes(machine, 2, 3)]).toEqual([true, false, true]);
});

test("does not route between interfaces without routing when another program switches forwarding on", async () => {
  const bridge = "br-0123456789ab";
  const machine = await machineWith(["lan0", "lan1", "wan0", "own0", bridge]);
  // A host of another program's network, behind a bridge of its own.
  machine.sh(`
ip netns add h5; ip link add virbr0 type bridge; ip address add 10.5.0.1/24 dev virbr0; ip link set virbr0 up
ip link add vm0 type veth peer name eth0 netns h5; ip link set vm0 master virbr0 up; ip -n h5 link set eth0 up
ip -n h5 address add 10.5.0.9/24 dev eth0; ip -n h5 route add default via 10.5.0.1
`);
  const section = sectionOver(machine, { record: EMPTY_RECORD });
  const interfaces = [0, 1].map((at) => ({ nic: `lan${at}`, ip: `10.${at}.0.1/24` }));
  await converge(section, { interfaces });
  expect(machine.sh("nft list ruleset").trim()).toBe("");

  machine.sh("echo 1 > /proc/sys/net/ipv4/ip_forward");
  await converge(section, { interfaces });
  const paths = [
    [0, 1],
    [1, 0],
    [0, 2],
    [2, 1],
  ] as const;
  expect(paths.map(([from, to]) => passes(machine, from, to))).toEqual([false, false, false, false]);
  // Traffic that the engine and other programs forward for themselves, and that of interfaces outside the section.
  expect([passes(machine, 4, 0), passes(machine, 5, 0), passes(machine, 0, 5)]).toEqual([true, true, true]);
  expect([passes(machine, 2, 3), passes(machine, 3, 2)]).toEqual([true, true]);
  // Traffic of the machine itself is not affected, and not tracked.
  expect(machine.sh("ping -c 1 -W 1 10.0.0.9")).toContain(" 0% packet loss");
  expect(machine.sh("nft list table inet holdfast")).not.toContain("ct state");

  await converge(section, { interfaces, forwarding: true });
  expect([passes(machine, 0, 1), passes(machine, 0, 2)]).toEqual([true, true]);
  await converge(section, { interfaces });
  expect(machine.sh("cat /proc/sys/net/ipv4/ip_forward").trim()).toBe("1");
  expect(passes(machine, 0, 1)).toBe(false);

  machine.sh("echo 0 > /proc/sys/net/ipv4/ip_forward");
  await converge(section, { interfaces });
  expect(machine.sh("nft list ruleset").trim()).toBe("");
});

test("clamps the MSS of forwarded connections to the smaller MTU of both directions", async () => {
  const machine = await machineWith(["lan0", "wan0"]);
  machine.sh("ip link set wan0 mtu 1400; ip -n h0 link set eth0 mtu 9000; ip link set lan0 mtu 9000");
  const section = sectionOver(machine, { record: EMPTY_RECORD });
  const interfaces = [
    { nic: "lan0", ip: "10.0.0.1/24", mtu: 9000 },
    { nic: "wan0", ip: "10.1.0.1/24", mtu: 1400 },
  ];
  await converge(section, { interfaces, forwarding: true });
  // A peer sends segments as large as its own MTU and the other's MSS allow: 1448 bytes beside timestamps unless the MSS is lowered.
  const sizes = machine.sh(`
listening() { ip netns exec h1 ss -Hltn sport = 7000 | grep -q .; }
connected() { ip netns exec "$1" ss -Htin state established "$2" = 7000 | grep -o ' mss:[0-9]*'; }
sleep 30 | ip netns exec h1 nc -l -p 7000 >/dev/null 2>&1 &
until listening; do sleep 0.05; done
sleep 30 | ip netns exec h0 nc 10.1.0.9 7000 >/dev/null 2>&1 &
until connected h0 dport >/dev/null && connected h1 sport >/dev/null; do sleep 0.05; done
connected h0 dport; connected h1 sport
kill %1 %2`);
  expect(sizes.trim().split(/\s+/)).toEqual(["mss:1348", "mss:1348"]);
});

test("an interface of a VRF and one outside the section are unreachable from each other", async () => {
  const machine = await machineWith(["red0", "wan0"]);
  const section = sectionOver(machine, { record: EMPTY_RECORD }, { hasVrf: false });
  const allow = { protocol: "any", source: "0.0.0.0/0", dest: "0.0.0.0/0", action: "allow" };
  await converge(section, {
    interfaces: [{ nic: "red0", ip: "10.0.0.1/24", vrf: "red" }],
    vrfs: [{ name: "red", forwarding: true, acls: [allow], routes: [{ dest: "10.1.0.0/24", dev: "red0" }] }],
    forwarding: true,
    acls: [allow],
  });
  // Another program routes each to the other.
  machine.sh("ip route replace 10.1.0.0/24 dev wan0 table 1000; ip rule add priority 100 iif wan0 lookup 1000");
  expect([passes(machine, 0, 1), passes(machine, 1, 0)]).toEqual([false, false]);
});

test("drops what an invalid rule would match, except the answers to the machine itself", async () => {
  const machine = await machineWith(["lan0", "wan0"]);
  const section = sectionOver(machine, { record: EMPTY_RECORD });
  const interfaces = [
    { nic: "lan0", ip: "10.0.0.1/24" },
    { nic: "wan0", ip: "10.1.0.1/24" },
  ];
  const rule = { protocol: "any", source: "10.0.0.0/24", dest: "10.1.0.0/24", action: "forward", line: 5 };
  const passing = async (...rules: readonly object[]): Promise<readonly boolean[]> => {
    await converge(section, { interfaces, forwarding: true, rules });
    const receives = machine.sh("ping -c 1 -W 1 10.0.0.9 || true").includes(" 0% packet loss");
    return [passes(machine, 0, 1), receives];
  };
  const [open, held] = [
    [true, true],
    [false, true],
  ];
  expect(await passing({ ...rule, iface: "wan0" })).toEqual(open);
  expect(await passing({ ...rule, vrf: "nowhere" })).toEqual(held);
  expect(await passing({ ...rule, iface: "gone0" })).toEqual(held);
  expect(await passing({ ...rule, iface: "wan0", dmac: "02:00:5e:00:53:01" })).toEqual(held);
  expect(await passing({ ...rule, action: "mirror", iface: "wan0" })).toEqual(held);
  expect(await passing({ ...rule, source: "10.0.0.0/99", dest: undefined, action: "drop" })).toEqual(held);
  expect(await passing({ ...rule, dest: "10.9.0.0/24", vrf: "nowhere" })).toEqual(open);
  // An earlier line matches first.
  expect(await passing({ ...rule, action: "accept", line: 4 }, { ...rule, vrf: "nowhere" })).toEqual(open);
  const { waits } = await stepsOf(section, {
    interfaces,
    rules: [
      { ...rule, action: "accept" },
      { ...rule, dmac: "02:00:5e:00:53:01", iface: "wan0" },
    ],
  });
  expect(waits).toMatchObject([{ path: "network.rules.1", code: "unsupported" }]);
});

test("an unreadable deny entry keeps its place among the others", async () => {
  const machine = await machineWith(["lan0", "wan0"]);
  const section = sectionOver(machine, { record: EMPTY_RECORD });
  const any = { protocol: "any", source: "0.0.0.0/0", dest: "0.0.0.0/0" };
  await converge(section, {
    forwarding: true,
    acls: [
      { ...any, line: 9, action: "allow" },
      { ...any, source: "10.0.0.0/99", line: 3, action: "drop" },
    ],
  });
  expect(passes(machine, 0, 1)).toBe(false);
});
