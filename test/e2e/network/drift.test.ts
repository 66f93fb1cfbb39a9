import { expect, test } from "vitest";
import { differences } from "../../support/network/machine-state.ts";
import { lanSection, networkStage } from "../../support/network/network-stage.ts";
import { waitFor } from "../../support/wait-for.ts";

const WAN = { nic: "eth0", ip: "192.168.1.2/24", gateway: "192.168.1.1" };
const stage = networkStage({ route: [], table: [], link: [] });
/** The kernel reports every change, long before the poll of each minute. */
const LIMIT_MS = 25_000;
const TIMES = 2;

/** Changes by other programs, by name. */
const WAYS: Readonly<Record<string, string>> = {
  route: "ip route del 10.30.0.0/16 dev eth1 proto 218 && ip route replace 10.30.0.0/16 via 192.168.1.1",
  table: "nft flush table inet holdfast",
  link: "ip address del 10.9.0.1/24 dev eth1",
};

test("reverts and counts changes of our entries by other programs", async () => {
  const outcomes = await Promise.all(
    Object.entries(WAYS).map(async ([name, line]) => {
      const machine = stage.machine(name);
      await machine.apply({
        ...lanSection(WAN),
        routes: [{ dest: "10.30.0.0/16", dev: "eth1", via: "10.9.0.2" }],
        nats: [{ source: "10.9.0.0/24", masquerade: true }],
      });
      const ours = machine.state();
      const isBack = (): boolean => differences(ours, machine.state()).every((line) => line.includes(": + "));
      // More than the number of polls for other reasons after a change.
      for (let time = 1; time <= TIMES; time += 1) {
        const before = driftsOf(await machine.reported());
        machine.sh(line);
        // It may be reverted before the next poll.
        await waitFor("it is counted", async () => driftsOf(await machine.reported()) > before, LIMIT_MS);
        await waitFor(`${line} is put back for the ${time}. time`, isBack, LIMIT_MS);
      }
      return `${name}: put back`;
    }),
  );
  expect(outcomes).toEqual(Object.keys(WAYS).map((name) => `${name}: put back`));
});

/** Returns the number of reverted changes of the section. */
function driftsOf(reported: Readonly<Record<string, unknown>>): number {
  return Number(reported["config.network.drift.count"] ?? 0);
}
