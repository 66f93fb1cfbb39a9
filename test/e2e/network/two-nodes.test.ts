import { join } from "node:path";
import { expect, test } from "vitest";
import { askAgent } from "../../../scripts/labs/ask-agent.ts";
import { ownFiles } from "../../../scripts/labs/own-files.ts";
import { HOLDFAST, placesOf, startAside } from "../../../scripts/labs/programs.ts";
import { Status } from "../../../src/protocol/local/answers.ts";
import { hastened } from "../../support/fake-time.ts";
import type { EdgeMachine } from "../../support/network/edge-machine.ts";
import { differences } from "../../support/network/machine-state.ts";
import { lanSection, networkStage } from "../../support/network/network-stage.ts";
import { waitFor } from "../../support/wait-for.ts";

const SHARED = "10.9.0.50";
const stage = networkStage({ a: [], b: [] });

test("the active member of a cluster holds its address, releases it when INACTIVE, and hands it over with its role", async () => {
  const { lab } = stage;
  const [a, b] = [stage.machine("a"), stage.machine("b")];
  const { fqdn } = (await lab.call("POST", "/cluster", { name: "pair" })) as { readonly fqdn: string };
  for (const machine of [a, b]) {
    await machine.apply(lanSection({ nic: "eth0", ip: "192.168.1.2/24", gateway: "192.168.1.1" }));
    await lab.call("PUT", `/node/${machine.uid}`, { cluster: fqdn });
  }
  const shared = {
    interfaces: [{ nic: "eth1", clusterIP: SHARED, routes: [{ route: "10.70.0.0/16", next: "10.9.0.2" }] }],
  };
  await lab.call("PUT", `/cluster/${fqdn}/config/network`, shared);
  const hasRoute = (machine: EdgeMachine): boolean => machine.sh("ip route show 10.70.0.0/16").includes("via 10.9.0.2");
  await waitFor("both have the cluster's routes", () => hasRoute(a) && hasRoute(b));
  expect([holds(a), holds(b)]).toEqual([false, false]);

  await promote(a, fqdn);
  await waitFor("the active member has the address", () => holds(a));
  await a.untilSettled();
  await b.untilSettled();
  expect(holds(b)).toBe(false);
  expect(a.sh(`ping -c 1 -W 2 ${SHARED}`, a.lan)).toContain(" 0% packet loss");

  await lab.call("PUT", `/node/${a.uid}`, { state: "INACTIVE" });
  await waitFor("a member that is INACTIVE has let go of it", () => !holds(a));
  expect(hasRoute(a)).toBe(true);
  await lab.call("PUT", `/node/${a.uid}`, { state: "ACTIVE" });
  await waitFor("it has it again", () => holds(a));

  await promote(b, fqdn);
  await waitFor("the other member has the address alone", () => holds(b) && !holds(a));
  await a.untilSettled();
  await b.untilSettled();
  expect([holds(a), holds(b)]).toEqual([false, true]);
  expect(b.sh(`ping -c 1 -W 2 ${SHARED}`, b.lan)).toContain(" 0% packet loss");

  await lab.call("DELETE", `/cluster/${fqdn}`);
  await waitFor("nobody has it without the cluster", () => !holds(b));
  // Each member receives its document separately.
  await waitFor("nobody has its routes", () => !hasRoute(a) && !hasRoute(b));
});

async function promote(machine: EdgeMachine, fqdn: string): Promise<void> {
  await machine.lab.call("PUT", `/cluster/${fqdn}/active/${machine.uid}`, null);
}

function holds(machine: EdgeMachine): boolean {
  return machine.paths().addresses.some((line) => line.includes(`local=${SHARED} `) && line.includes("ifname=eth1 "));
}

// The last one, since the node b moves.

test("of two nodes on one machine the second leaves the network alone, and takes over when the first stops", async () => {
  const [a, b] = [stage.machine("a"), stage.machine("b")];
  const section = lanSection({ nic: "eth0", ip: "192.168.1.2/24", gateway: "192.168.1.1" });
  await a.apply(section);
  const before = a.state();

  // The node b moves to the machine of a.
  await b.lab.endAgent("b");
  const { own, state, run } = placesOf(stage.lab.dir, "b");
  const command = [...HOLDFAST, "agent", "--state", state, "--run", run];
  // It asks seldom whether the machine is free.
  startAside([...a.within, ...ownFiles(own), ...hastened(5)], command, join(own, "second.log"));
  const statusOf = async () => Status.parse(await askAgent(stage.lab, "b", "/v1/status"));
  await b.put({ interfaces: [{ nic: "eth1", ip: "10.66.0.1/24" }] });
  const second = await waitFor(
    "the second node has seen the section",
    async () => (await statusOf()).sections["network"],
  );
  expect(second).toMatchObject({ state: "unsupported", issues: ["another node owns this machine"] });
  expect(differences(before, a.state())).toEqual([]);

  await a.lab.endAgent("a", "SIGKILL");
  await waitFor(
    "the second node owns the machine",
    async () =>
      (await statusOf()).sections["network"]?.state === "converged" &&
      a.paths().addresses.join("\n").includes("10.66.0.1"),
  );
});
