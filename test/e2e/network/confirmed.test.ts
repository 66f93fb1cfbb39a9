import { expect, test } from "vitest";
import { differences } from "../../support/network/machine-state.ts";
import { lanSection, networkStage } from "../../support/network/network-stage.ts";
import { waitFor } from "../../support/wait-for.ts";

const WAN = { nic: "eth0", ip: "192.168.1.2/24", gateway: "192.168.1.1" };
const stage = networkStage({ a: [] }, { gateways: ["gw1"] });

test("a change is confirmed when control plane and gateway are reached, and persists", async () => {
  const machine = stage.machine("a");
  const begun = machine.state();
  // A second path out, which the site's router has too.
  machine.sh("ip address add 192.168.1.254/24 dev lan", machine.router);
  await machine.apply({ ...lanSection({ ...WAN, gateway: "192.168.1.254", addIps: ["192.168.1.20/24"] }) });
  const good = machine.state();
  const change = differences(begun, good).join("\n");
  expect(change).toMatch(/routes: \+ .*gateway=192\.168\.1\.254/);
  expect(machine.sh("ip route get 203.0.113.10")).toContain("via 192.168.1.254");
  expect((await machine.reported())["document.node.refused"]).toBeUndefined();

  await machine.lab.restart("agent", "a", "SIGKILL");
  await machine.untilOnline();
  expect(differences(good, machine.state())).toEqual([]);
});

test("a control plane that restarts at the wrong moment does not make the node refuse a good change indefinitely", async () => {
  const machine = stage.machine("a");
  const { documents } = await machine.status();
  await machine.put(lanSection({ ...WAN, addIps: ["192.168.1.30/24"] }));
  await waitFor(
    "the node has the document",
    async () => (await machine.status()).documents.node?.version !== documents.node?.version,
  );
  await machine.lab.restart("controller", "controller", "SIGKILL");
  await machine.untilSettled((documents.node?.version ?? 0) + 1);
  expect(machine.paths().addresses.join("\n")).toContain("192.168.1.30");
  expect((await machine.status()).documents.node?.refused).toBeUndefined();
});
