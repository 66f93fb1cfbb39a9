import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { placesOf } from "../../../scripts/labs/programs.ts";
import { dhcpUnit } from "../../../src/host/network/dhcp/dhcp-client.ts";
import { hastened } from "../../support/fake-time.ts";
import { serveLeases } from "../../support/network/lease-server.ts";
import { networkStage } from "../../support/network/network-stage.ts";
import { UNDER_UNITS } from "../../support/machine/real-units.ts";
import { waitFor } from "../../support/wait-for.ts";

const WAN = { nic: "eth0", ip: "192.168.1.2/24", gateway: "192.168.1.1" };
const STATIC = { interfaces: [WAN, { nic: "eth1", ip: "10.9.0.1/24" }] };
const stage = networkStage({ a: [] });

test("an interface changes from its address to DHCP and back, keeps its address until there is a lease, and a new agent adopts the client", async () => {
  const machine = stage.machine("a");
  // Conditions are reported from a minute after the start on.
  await machine.lab.endAgent("a");
  await machine.start(hastened(5));
  await machine.apply(STATIC);
  const own = (): readonly string[] =>
    machine
      .paths()
      .addresses.flatMap((line) => (line.includes("ifname=eth1 ") ? (/ local=(\S+)/.exec(line)?.[1] ?? []) : []));
  const client = (): string =>
    UNDER_UNITS
      ? execFileSync("systemctl", ["show", "--value", "--property=MainPID", dhcpUnit("eth1")], {
          encoding: "utf8",
        }).trim()
      : (readFileSync(join(placesOf(machine.lab.dir, "a").run, "dhcp-eth1.pid"), "utf8").split(" ", 1)[0] ?? "");
  const states = async (): Promise<readonly unknown[]> => {
    const events = await machine.events();
    return events.flatMap(({ message, state }) =>
      String(message).includes("lease") ? [`${String(state)}: ${String(message)}`] : [],
    );
  };
  const before = machine.state();
  expect(own()).toEqual(["10.9.0.1"]);

  await machine.put({ interfaces: [WAN, { nic: "eth1", dhcp: true }] });
  const waiting = await waitFor("it waits for a lease", async () => {
    const { network } = (await machine.status()).sections;
    return network?.state === "pending" ? network : undefined;
  });
  expect(waiting.issues.join("\n")).toContain("no DHCP server has answered on eth1 yet");
  expect(own()).toEqual(["10.9.0.1"]);
  await waitFor("that is reported", async () =>
    (await states()).some((text) => String(text).includes("lease failure")),
  );

  await serveLeases(machine, "10.9.0.100");
  await waitFor("there is a lease, and nothing else", () => own().join(" ") === "10.9.0.100");
  await machine.untilSettled();
  await waitFor("its end is reported", async () =>
    (await states()).some((text) => String(text).includes("was obtained")),
  );

  // The server names itself as the gateway; only a WAN has a default route.
  expect(machine.sh("ip -4 route show default")).toMatch(/^default via 192\.168\.1\.1 dev eth0 [^\n]*\n$/);

  const pid = client();
  await machine.lab.endAgent("a", "SIGKILL");
  await machine.start();
  await machine.untilSettled();
  expect(client()).toBe(pid);
  process.kill(Number(pid), 0);
  expect(own()).toEqual(["10.9.0.100"]);

  await machine.apply(STATIC);
  // A value that dhcpcd sets by itself.
  await machine.untilAs(before, 30_000, (line) => line.includes("/conf/eth1/promote_secondaries:"));
  await waitFor("the client has ended", () => !machine.lab.network.pids("a").includes(Number(pid)));
});
