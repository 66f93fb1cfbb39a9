import { join } from "node:path";
import { expect, test } from "vitest";
import { HOLDFAST, placesOf, startAside } from "../../../scripts/labs/programs.ts";
import { ownFiles } from "../../../scripts/labs/own-files.ts";
import { askAgent } from "../../../scripts/labs/ask-agent.ts";
import { Status } from "../../../src/protocol/local/answers.ts";
import { hastened } from "../../support/fake-time.ts";
import { differences } from "../../support/network/machine-state.ts";
import { lanSection, networkStage } from "../../support/network/network-stage.ts";
import { waitFor } from "../../support/wait-for.ts";

const stage = networkStage({ a: [], b: [] });

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
    async () => (await statusOf()).sections["network"]?.state === "converged",
  );
  expect(a.paths().addresses.join("\n")).toContain("10.66.0.1");
});
