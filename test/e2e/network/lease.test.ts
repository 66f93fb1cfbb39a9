import { expect, test } from "vitest";
import { differences } from "../../support/network/machine-state.ts";
import { WINDOW_SECONDS } from "../../support/network/edge-machine.ts";
import { serveLeases } from "../../support/network/lease-server.ts";
import { networkStage } from "../../support/network/network-stage.ts";
import { waitFor } from "../../support/wait-for.ts";

const WAN = { nic: "eth0", ip: "192.168.1.2/24", gateway: "192.168.1.1" };
/** A host that is up and forwards nothing. */
const stage = networkStage({ a: [{ name: "box", last: 9 }] });

test("a lease that changes during a pending change is the new one afterwards, and the rest is unchanged", async () => {
  const machine = stage.machine("a");
  const stop = await serveLeases(machine, "10.9.0.100");
  const section = { interfaces: [WAN, { nic: "eth1", dhcp: true }] };
  await machine.own(section);
  const hasLease = (address: string) => (): boolean =>
    machine.state().addresses.some((line) => line.includes("ifname=eth1") && line.includes(`local=${address} `));
  await waitFor("there is a lease", hasLease("10.9.0.100"));
  const old = machine.state();

  await machine.put({ interfaces: [{ ...WAN, gateway: "192.168.1.9" }, section.interfaces[1]] });
  await waitFor("the change is made", () => differences(old, machine.state()).length > 0);
  stop();
  await serveLeases(machine, "10.9.0.150");
  // After a cable was unplugged and plugged, every client requests again.
  machine.sh(
    "ip link set eth0 down && sleep 1 && ip link set eth0 up && ip route replace default via 10.9.0.1 || true",
    machine.lan,
  );
  await waitFor("there is another lease", hasLease("10.9.0.150"));
  await machine.untilAs(old, (WINDOW_SECONDS + 30) * 1000, (line) => /eth1|10\.9\.0\./.test(line));
  expect(hasLease("10.9.0.150")()).toBe(true);
  expect(hasLease("10.9.0.100")()).toBe(false);
  await machine.untilOnline();
});
