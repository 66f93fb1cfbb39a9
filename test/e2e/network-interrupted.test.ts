import { expect, test } from "vitest";
import { differences, type MachineState } from "../support/machine-state.ts";
import { WINDOW_SECONDS, type EdgeMachine } from "../support/edge-machine.ts";
import { lanSection, networkStage } from "../support/network-stage.ts";
import { waitFor } from "../support/wait-for.ts";

const WAN = { nic: "eth0", ip: "192.168.1.2/24", gateway: "192.168.1.1" };
const stage = networkStage({ killed: [], hung: [], rebooted: [], newer: [] });

/** Makes a change that cannot be proven, and gives what was there before it. */
async function inTheWindow(machine: EdgeMachine): Promise<MachineState> {
  await machine.apply(lanSection(WAN));
  const good = machine.state();
  await machine.put(lanSection({ ...WAN, gateway: "192.168.1.99" }));
  await waitFor("the change is made", () => !machine.reachesController());
  return good;
}

const untilAsBefore = (machine: EdgeMachine, good: MachineState): Promise<void> =>
  machine.untilAs(good, (WINDOW_SECONDS + 15) * 1000);

async function killed(machine: EdgeMachine): Promise<void> {
  const good = await inTheWindow(machine);
  await machine.lab.endAgent(machine.name, "SIGKILL");
  await untilAsBefore(machine, good);
  expect(machine.reachesController()).toBe(true);
  expect(machine.lab.pidOf(machine.name, "agent")).toBeUndefined();
  await machine.start();
  await isTold(machine);
  expect(differences(good, machine.state())).toEqual([]);
}

async function hung(machine: EdgeMachine): Promise<void> {
  const good = await inTheWindow(machine);
  const pid = machine.lab.pidOf(machine.name, "agent") ?? 0;
  process.kill(pid, "SIGSTOP");
  await untilAsBefore(machine, good);
  process.kill(pid, "SIGCONT");
  await isTold(machine);
  expect(machine.lab.pidOf(machine.name, "agent")).toBe(pid);
  expect(differences(good, machine.state())).toEqual([]);
}

async function rebooted(machine: EdgeMachine): Promise<void> {
  const good = await inTheWindow(machine);
  await machine.cutPower();
  machine.boot();
  const { code, stderr } = await machine.holdfast("guard", "restore");
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  await machine.start();
  await untilAsBefore(machine, good);
  await isTold(machine);
}

async function newer(machine: EdgeMachine): Promise<void> {
  const good = await inTheWindow(machine);
  // Nobody can be asked over this network, so the next version comes when the old one is back.
  await machine.put(lanSection({ ...WAN, mtu: 1400 }));
  await untilAsBefore(machine, good).catch(() => undefined);
  await machine.untilSettled();
  expect(machine.state().links.join("\n")).toContain("mtu=1400");
  expect(machine.reachesController()).toBe(true);
}

/** The control plane has been told that the change was taken back. */
function isTold(machine: EdgeMachine): Promise<unknown> {
  return waitFor(
    `the control plane knows of ${machine.name}`,
    async () => /taken back/i.test(JSON.stringify(await machine.events())),
    60_000,
  );
}

test("whatever becomes of the agent in the middle of a change, the old network comes back by itself", async () => {
  const ways = { killed, hung, rebooted, newer };
  const outcomes = await Promise.all(
    Object.entries(ways).map(async ([name, way]) => {
      try {
        await way(stage.machine(name));
        return `${name}: back`;
      } catch (error) {
        return `${name}: ${String(error)}`;
      }
    }),
  );
  expect(outcomes).toEqual(Object.keys(ways).map((name) => `${name}: back`));
}, 180_000);
