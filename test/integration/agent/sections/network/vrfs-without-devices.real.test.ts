import { expect, test } from "vitest";
import { EMPTY_RECORD } from "../../../../../src/host/network/state/record.ts";
import { networkMachine } from "../../../../support/network/network-machine.ts";
import { converge, dump, sectionOver } from "../../../../support/network/real-network.ts";
import { tempDir } from "../../../../support/temp-dir.ts";

const signal = new AbortController().signal;
const HOST = "10.1.0.9";
/** Two VRFs, each with a host of the same address. */
const MACHINE = ["red", "blue"]
  .map(
    (name) => `
ip netns add h${name}
ip link add e${name} type veth peer name eth0 netns h${name}
ip -n h${name} link set eth0 up
ip -n h${name} address add ${HOST}/24 dev eth0`,
  )
  .join("\n");

const sectionOf = (red: string, blue: string) => ({
  interfaces: [
    { nic: "ered", ip: red, vrf: "red" },
    { nic: "eblue", ip: blue, vrf: "blue" },
  ],
  vrfs: [{ name: "red" }, { name: "blue" }],
});

/** A section that assumes a kernel without VRF devices. */
async function rig() {
  const machine = await networkMachine(tempDir(), {}, MACHINE);
  const section = sectionOver(machine, { record: EMPTY_RECORD }, { hasVrf: false });
  const answers = (host: string, address: string): boolean =>
    machine.sh(`ip netns exec h${host} ping -c 1 -W 2 ${address} || true`).includes(" 0% packet loss");
  return { machine, section, answers };
}

test("separates two VRFs with the same subnet, each with a host of the same address", async () => {
  const { machine, section, answers } = await rig();
  // The kernel reports late that the other end is up.
  const settled = (): string => dump(machine).replaceAll("NO-CARRIER,", "");
  const before = settled();
  const { waits, undos } = await converge(section, sectionOf("10.1.0.1/24", "10.1.0.2/24"));
  expect(waits).toEqual([]);
  expect([answers("red", "10.1.0.1"), answers("blue", "10.1.0.2")]).toEqual([true, true]);
  expect([answers("red", "10.1.0.2"), answers("blue", "10.1.0.1")]).toEqual([false, false]);
  // An address of the other VRF may belong to a host here, for which we must not answer.
  const neighbour = (host: string, address: string): string => machine.sh(`ip -n h${host} neighbour show ${address}`);
  expect(neighbour("red", "10.1.0.1")).toContain("lladdr");
  expect([neighbour("red", "10.1.0.2"), neighbour("blue", "10.1.0.1")].join("\n")).not.toContain("lladdr");
  for (const undo of undos) await section.apply(undo, signal);
  expect(settled()).toBe(before);
});

test("keeps the second of two VRFs with one address down, without remains on the machine", async () => {
  const { machine, section, answers } = await rig();
  const { waits } = await converge(section, sectionOf("10.1.0.1/24", "10.1.0.1/24"));
  expect(waits).toMatchObject([{ path: "network.interfaces.1", code: "address-taken" }]);
  expect(waits[0]?.message).toContain("held in the VRF red by network.interfaces.0");
  expect([answers("red", "10.1.0.1"), answers("blue", "10.1.0.1")]).toEqual([true, false]);
  const rules = machine.sh("ip -4 rule show");
  expect(rules).toContain("from 10.1.0.1 lookup 1000");
  expect(rules).not.toContain("lookup 1001");
  expect(machine.sh("ip -4 address show dev eblue")).not.toContain("inet");
  // It is applied as soon as it is correct.
  await converge(section, sectionOf("10.1.0.1/24", "10.1.0.2/24"));
  expect([answers("red", "10.1.0.1"), answers("blue", "10.1.0.2")]).toEqual([true, true]);
});
