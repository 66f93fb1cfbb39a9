import { expect, test } from "vitest";
import { EMPTY_RECORD } from "../../../../../src/host/network/state/record.ts";
import { NetworkUndo } from "../../../../../src/host/network/restore.ts";
import { networkMachineInTurn } from "../../../../support/network/network-machine.ts";
import type { Notes } from "../../../../support/network/network-section.ts";
import { converge, dump, sectionOver, stepsOf } from "../../../../support/network/real-network.ts";
import { tempDir } from "../../../../support/temp-dir.ts";

const networkMachine = networkMachineInTurn();
const signal = new AbortController().signal;
const CARRIER = { local: "198.51.100.10", remote: "203.0.113.9" };
const MACHINE = `
for n in 0 1 2; do ip link add eth$n type veth peer name far$n; ip link set far$n up; done
ip link set eth0 up
ip address add 198.51.100.10/24 dev eth0
ip route add default via 198.51.100.1 dev eth0
ip route add 203.0.113.0/24 via 198.51.100.2 dev eth0 proto 186
ip rule add priority 5300 from 192.0.2.77 lookup 77
nft add table inet docker`;

const FULL = {
  darkMode: true,
  forwarding: true,
  interfaces: [
    { nic: "eth0", ip: "198.51.100.10/24", gateway: "198.51.100.1", mtu: 1400 },
    {
      nic: "eth1",
      ip: "10.1.0.1/24",
      addIps: ["10.1.0.2/24", "10.1.9.1/32"],
      routes: [{ route: "10.11.0.0/16", next: "10.1.0.254" }],
    },
    { nic: "eth2", ip: "10.2.0.1/24", gateway: "10.2.0.254", vrf: "guest", routes: [{ route: "10.22.0.0/16" }] },
  ],
  vrfs: [
    {
      name: "guest",
      forwarding: true,
      routes: [{ dest: "10.33.0.0/16", via: "10.2.0.253", metric: 5 }],
      acls: [
        { protocol: "tcp", source: "10.2.0.0/16", dest: "10.33.0.0/16", ports: "443", action: "allow", line: 2 },
        { protocol: "any", source: "10.2.0.0/16", dest: "10.33.0.0/16", action: "reject", line: 1 },
      ],
      nats: [
        { source: "10.2.0.0/24", dest: "10.33.0.0/16", toSource: "172.16.2.0/24" },
        { dest: "10.44.0.0/24", toDest: "10.33.4.0/24" },
        { source: "10.2.0.0/16", masquerade: true },
        { masquerade: true },
      ],
    },
  ],
  routes: [{ dest: "10.50.0.0/16", via: "10.1.0.253", metric: 10 }],
  acls: [{ protocol: "icmp", source: "0.0.0.0/0", dest: "0.0.0.0/0", action: "allow" }],
  rules: [
    { protocol: "tcp", source: "private", dest: "public", ports: "80", action: "dnat", dnat: "10.1.0.9:3128", line: 1 },
    { protocol: "any", source: "10.1.0.0/24", dest: "10.33.0.0/16", action: "forward", vrf: "guest", line: 2 },
    {
      protocol: "any",
      source: "10.1.0.0/24",
      dest: "public",
      in: "eth1",
      action: "forward",
      iface: "eth0",
      snat: true,
    },
    { protocol: "udp", source: "10.1.0.0/24", dest: "10.60.0.0/16", action: "reject", line: 3 },
    { protocol: "udp", source: "10.1.0.0/24", dest: "10.60.0.0/16", ports: "1-9", action: "log", line: 4 },
  ],
};

test("applies a section on a real kernel, and a stored undo leaves no difference", async () => {
  const machine = await networkMachine(tempDir(), {}, MACHINE);
  const notes: Notes = { record: EMPTY_RECORD };
  const section = sectionOver(machine, notes, { carrier: CARRIER });
  const before = dump(machine);
  const { undos } = await converge(section, FULL);
  const after = dump(machine);
  expect(after).not.toBe(before);
  expect(after).toContain("unreachable default table 1000 proto 218 metric 4278198272");
  expect(machine.sh("ip route get 8.8.8.8 iif eth2 from 10.2.0.9 2>&1 || true")).toContain("No route to host");
  expect(machine.sh("ip route get 10.33.0.1 iif eth2 from 10.2.0.9")).toContain("via 10.2.0.253");
  expect(undos).toHaveLength(1);
  await section.apply(NetworkUndo.parse(JSON.parse(JSON.stringify(undos[0]))), signal);
  expect(dump(machine)).toBe(before);
  expect(notes.record).toEqual(EMPTY_RECORD);
});

test("changes the address of the WAN within its subnet, and keeps foreign entries", async () => {
  const machine = await networkMachine(tempDir(), {}, MACHINE);
  const section = sectionOver(machine, { record: EMPTY_RECORD }, { carrier: CARRIER });
  const wan = (ip: string) => ({ interfaces: [{ nic: "eth0", ip, gateway: "198.51.100.1" }] });
  await converge(section, wan("198.51.100.20/24"));
  await converge(section, wan("198.51.100.21/24"));
  const shown = dump(machine);
  expect(shown).toContain("198.51.100.10/24");
  expect(shown).toContain("198.51.100.21/24");
  expect(shown).not.toContain("198.51.100.20/24");
  expect(shown).toContain("203.0.113.0/24 via 198.51.100.2 dev eth0 proto bgp");
  expect(shown).toContain("5300:\tfrom 192.0.2.77 lookup 77");
  expect(shown).toContain("table inet docker");
});

test("names a speed that the driver cannot set, and applies the rest", async () => {
  const machine = await networkMachine(tempDir(), {}, MACHINE);
  const section = sectionOver(machine, { record: EMPTY_RECORD });
  const nic = { nic: "eth1", ip: "10.1.0.1/24", mode: "manual", duplex: "full" };
  await converge(section, { interfaces: [{ ...nic, speed: 1000 }] });
  const { waits } = await stepsOf(section, { interfaces: [{ ...nic, speed: 1000 }] });
  expect(waits).toEqual([expect.objectContaining({ path: "network.interfaces.0", code: "unsupported" })]);
  expect(waits[0]?.message).toContain("cannot fix 1000 Mbit/s full duplex");
  expect(machine.sh("ip -4 address show dev eth1")).toContain("10.1.0.1/24");
  // Another speed is a new attempt.
  const { steps } = await stepsOf(section, { interfaces: [{ ...nic, speed: 100 }] });
  expect(steps.map(({ kind }) => kind)).toEqual(["ethtool"]);
});
