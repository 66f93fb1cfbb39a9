import { expect, test } from "vitest";
import { EMPTY_RECORD } from "../../../../../src/host/network/state/record.ts";
import { networkMachineInTurn, type NetworkMachine } from "../../../../support/network/network-machine.ts";
import { converge, dump, sectionOver, stepsOf } from "../../../../support/network/real-network.ts";
import { tempDir } from "../../../../support/temp-dir.ts";

const networkMachine = networkMachineInTurn();
const signal = new AbortController().signal;
const FAR = "203.0.113.9";
const [RIGHT, WRONG, NOBODY] = ["192.168.1.1", "192.168.1.9", "192.168.1.77"];

/** A WAN with a router, and another machine that answers for its address and forwards nothing. */
const MACHINE = `
ip link add wan type bridge
for n in ${RIGHT} ${WRONG}; do
  ip netns add r$n
  ip link add b$n type veth peer name eth0 netns r$n
  ip link set b$n master wan up
  ip -n r$n address add $n/24 dev eth0
  ip -n r$n link set eth0 up
done
ip -n r${RIGHT} link set lo up
ip -n r${RIGHT} address add ${FAR}/32 dev lo
ip link add eth0 type veth peer name beth0
ip link set beth0 master wan up
ip link set wan up
ip link set eth0 up
ip address add 192.168.1.10/24 dev eth0
ip route add default via ${RIGHT} dev eth0
ip rule add priority 9000 from 192.0.2.77 lookup 77`;

const wan = (gateway: string) => ({ interfaces: [{ nic: "eth0", ip: "192.168.1.10/24", gateway }] });

/** Reports whether the other end is reachable, often enough that the kernel knows both gateways and could use either. */
function answers(machine: NetworkMachine): readonly boolean[] {
  machine.sh(`ping -c 1 -W 1 ${RIGHT}; ping -c 1 -W 1 ${WRONG}; true`);
  return Array.from({ length: 4 }, () => machine.sh(`ping -c 1 -W 1 ${FAR} > /dev/null; echo $?`).trim() === "0");
}

const NEVER = [false, false, false, false];
const ALWAYS = [true, true, true, true];

test("the section's gateway is used in spite of the distribution's, even if it is unreachable or forwards nothing", async () => {
  const machine = await networkMachine(tempDir(), {}, MACHINE);
  const section = sectionOver(machine, { record: EMPTY_RECORD });
  expect(answers(machine)).toEqual(ALWAYS);
  // The kernel reports a bridge's carrier late.
  const settled = (): string => dump(machine).replaceAll("NO-CARRIER,", "");
  const before = settled();
  const { undos } = await converge(section, wan(WRONG));
  expect(answers(machine)).toEqual(NEVER);
  expect(machine.sh("ip route show default")).toContain(`default via ${RIGHT} dev eth0 \n`);
  await converge(section, wan(NOBODY));
  expect(answers(machine)).toEqual(NEVER);
  for (const undo of undos) await section.apply(undo, signal);
  expect(answers(machine)).toEqual(ALWAYS);
  expect(settled()).toBe(before);
});

test("the right gateway is used although the distribution has a wrong one of the same metric, or adds one before it later", async () => {
  const machine = await networkMachine(tempDir(), {}, MACHINE);
  const section = sectionOver(machine, { record: EMPTY_RECORD });
  machine.sh(`ip route replace default via ${WRONG} dev eth0`);
  await converge(section, wan(RIGHT));
  expect(answers(machine)).toEqual(ALWAYS);
  machine.sh(`ip route delete default via ${WRONG}; ip route prepend default via ${WRONG} dev eth0`);
  expect(answers(machine)).toEqual(NEVER);
  const { steps } = await converge(section, wan(RIGHT));
  expect(steps).toHaveLength(1);
  expect(answers(machine)).toEqual(ALWAYS);
  // A foreign route counts as the wanted one only while it is the only one.
  machine.sh(`ip route delete default via ${RIGHT}; ip route append default via ${RIGHT} dev eth0`);
  await converge(section, wan(RIGHT));
  expect(answers(machine)).toEqual(ALWAYS);
});

test("an address beside the distribution's of the same subnet is the source of this machine's traffic", async () => {
  const machine = await networkMachine(tempDir(), {}, MACHINE);
  machine.sh(`ip -n r${RIGHT} route add 10.70.0.0/16 dev lo; ip -n r${RIGHT} address add 10.70.0.1/32 dev lo`);
  const section = sectionOver(machine, { record: EMPTY_RECORD });
  const sourceTo = (address: string): string => /src (\S+)/.exec(machine.sh(`ip route get ${address}`))?.[1] ?? "";
  const targets = [RIGHT, FAR, "10.70.0.1"];
  const settled = (): string => dump(machine).replaceAll("NO-CARRIER,", "");
  const before = settled();
  const of = (ip: string, more: object = {}) => ({
    interfaces: [{ nic: "eth0", ip, gateway: RIGHT, routes: [{ route: "10.70.0.0/16", next: RIGHT }], ...more }],
  });
  const { undos } = await converge(section, of("192.168.1.20/24"));
  expect(targets.map(sourceTo)).toEqual(Array(3).fill("192.168.1.20"));
  const { notices } = await stepsOf(section, of("192.168.1.20/24"));
  expect(notices).toMatchObject([{ path: "network.interfaces.0.ip", code: "not-primary" }]);
  expect(notices[0]?.message).toContain("192.168.1.10/24 of another program");
  expect(answers(machine)).toEqual(ALWAYS);

  await converge(section, of("192.168.1.21/24"));
  expect(targets.map(sourceTo)).toEqual(Array(3).fill("192.168.1.21"));
  for (const undo of undos) await section.apply(undo, signal);
  expect(settled()).toBe(before);

  // The same if an additional address of the section was first.
  machine.sh("ip address delete 192.168.1.10/24 dev eth0");
  await converge(section, of("192.168.1.20/24", { addIps: ["192.168.1.30/24"] }));
  expect(sourceTo(RIGHT)).toBe("192.168.1.20");
  await converge(section, of("192.168.1.21/24", { addIps: ["192.168.1.30/24"] }));
  expect(targets.map(sourceTo)).toEqual(Array(3).fill("192.168.1.21"));
  expect((await stepsOf(section, of("192.168.1.21/24", { addIps: ["192.168.1.30/24"] }))).notices).toEqual([]);
});
