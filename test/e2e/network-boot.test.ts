import { expect, test } from "vitest";
import { cut, heal } from "../../scripts/labs/faults.ts";
import { differences } from "../support/machine-state.ts";
import { lanSection, networkStage } from "../support/network-stage.ts";
import { waitFor } from "../support/wait-for.ts";

const stage = networkStage({ a: [] });
const WAN = { nic: "eth0", ip: "192.168.1.2/24", gateway: "192.168.1.1" };

test("a machine that starts without its control plane has the last confirmed network, and nothing changes when that is back", async () => {
  const machine = stage.machine("a");
  await machine.apply({
    ...lanSection({ ...WAN, addIps: ["192.168.1.20/24"] }),
    routes: [{ dest: "10.30.0.0/16", dev: "eth1", via: "10.9.0.2" }],
    nats: [{ source: "10.9.0.0/24", masquerade: true }],
  });
  const confirmed = machine.state();
  await machine.cutPower();
  cut(machine.lab, "a");
  machine.boot();
  expect(differences(confirmed, machine.state())).not.toEqual([]);
  await machine.start();
  await waitFor("the confirmed network is in force", () => differences(confirmed, machine.state()).length === 0);
  expect((await machine.status()).session.state).not.toBe("online");
  await heal(machine.lab, "a");
  await machine.untilOnline();
  expect(differences(confirmed, machine.state())).toEqual([]);
}, 180_000);
