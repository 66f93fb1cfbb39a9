import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { placesOf } from "../../../scripts/labs/programs.ts";
import { NetworkRecord } from "../../../src/host/network/state/record.ts";
import { atOnce } from "../../support/at-once.ts";
import { differences, type MachineState } from "../../support/network/machine-state.ts";
import { WINDOW_SECONDS, type EdgeMachine } from "../../support/network/edge-machine.ts";
import { lanSection, networkStage } from "../../support/network/network-stage.ts";
import { waitFor } from "../../support/wait-for.ts";

const WAN = { nic: "eth0", ip: "192.168.1.2/24", gateway: "192.168.1.1" };
/** A host that is up and forwards nothing. */
const DEAD_END = "192.168.1.9";
/** Seconds in which a busy machine connects, too. */
const SURELY = 60;
const boxOf = (name: string) => [{ name: `${name}-box`, last: 9 }];
const stage = networkStage({
  killed: boxOf("killed"),
  hung: boxOf("hung"),
  rebooted: boxOf("rebooted"),
  newer: boxOf("newer"),
});

interface Begun {
  readonly good: MachineState;
  /** The records about the machine then. */
  readonly noted: string;
  /** Version of the document that cut the node off. */
  readonly version: number;
}

/** Makes a change that cannot be verified, and returns the state before it. */
async function inTheWindow(machine: EdgeMachine): Promise<Begun> {
  await machine.own(lanSection(WAN));
  const { documents } = await machine.status();
  const good = machine.state();
  const noted = recordOf(machine);
  await machine.put({ ...lanSection({ ...WAN, mtu: 1400, gateway: DEAD_END }), forwarding: true });
  // A connection may take a busy machine too long before the change, too.
  await waitFor("the change is made", () => recordOf(machine) !== noted && !machine.reachesController());
  return { good, noted, version: (documents.node?.version ?? 0) + 1 };
}

const recordOf = (machine: EdgeMachine): string => {
  const { body } = JSON.parse(
    readFileSync(join(placesOf(machine.lab.dir, machine.name).state, "network-record.json"), "utf8"),
  ) as { readonly body: unknown };
  return JSON.stringify(NetworkRecord.parse(body));
};

const untilAsBefore = (machine: EdgeMachine, { good }: Begun): Promise<void> =>
  machine.untilAs(good, (WINDOW_SECONDS + 15) * 1000);

/** Expects one retry of the interrupted change, and its refusal. */
async function isRefusedInTheEnd(machine: EdgeMachine, begun: Begun): Promise<void> {
  await isTold(machine);
  const isRefused = async (): Promise<boolean> => (await machine.status()).documents.node?.refused === begun.version;
  await waitFor(`${machine.name} refuses it`, isRefused, 240_000);
  expect(differences(begun.good, machine.state())).toEqual([]);
  expect(machine.reachesController(SURELY)).toBe(true);
}

async function killed(machine: EdgeMachine): Promise<void> {
  const begun = await inTheWindow(machine);
  await machine.lab.endAgent(machine.name, "SIGKILL");
  await untilAsBefore(machine, begun);
  expect(machine.reachesController(SURELY)).toBe(true);
  expect(machine.lab.pidOf(machine.name, "agent")).toBeUndefined();
  await waitFor("what was noted is as it was", () => recordOf(machine) === begun.noted);
  await machine.start();
  await isRefusedInTheEnd(machine, begun);
}

async function hung(machine: EdgeMachine): Promise<void> {
  const begun = await inTheWindow(machine);
  const pid = machine.lab.pidOf(machine.name, "agent") ?? 0;
  process.kill(pid, "SIGSTOP");
  await untilAsBefore(machine, begun);
  process.kill(pid, "SIGCONT");
  await isRefusedInTheEnd(machine, begun);
  expect(machine.lab.pidOf(machine.name, "agent")).toBe(pid);
}

async function rebooted(machine: EdgeMachine): Promise<void> {
  const begun = await inTheWindow(machine);
  await machine.cutPower();
  machine.boot();
  const { code, stderr } = await machine.restore();
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  await machine.start();
  await isRefusedInTheEnd(machine, begun);
}

async function newer(machine: EdgeMachine): Promise<void> {
  const begun = await inTheWindow(machine);
  // Nothing arrives over this network, so the next version comes when the old one is back.
  await machine.put(lanSection({ ...WAN, mtu: 1400 }));
  await machine.untilSettled(begun.version + 1, 240_000);
  expect(machine.paths().links.join("\n")).toContain("mtu=1400");
  expect(machine.reachesController(SURELY)).toBe(true);
}

/** Waits until the control plane has the report of the rollback. */
function isTold(machine: EdgeMachine): Promise<unknown> {
  return waitFor(`the control plane knows of ${machine.name}`, async () =>
    /was reverted/i.test(JSON.stringify(await machine.events())),
  );
}

test("whatever happens to the agent in the middle of a change, the old network is restored by itself", async () => {
  const ways = { killed, hung, rebooted, newer };
  await atOnce(
    Object.entries(ways),
    ([name]) => name,
    ([name, way]) => way(stage.machine(name)),
  );
}, 600_000);
