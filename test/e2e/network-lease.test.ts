import { join } from "node:path";
import { expect, test } from "vitest";
import { startAside } from "../../scripts/labs/programs.ts";
import { differences } from "../support/machine-state.ts";
import { WINDOW_SECONDS, type EdgeMachine } from "../support/edge-machine.ts";
import { networkStage } from "../support/network-stage.ts";
import { waitFor } from "../support/wait-for.ts";

const WAN = { nic: "eth0", ip: "192.168.1.2/24", gateway: "192.168.1.1" };
const stage = networkStage({ a: [] });

/** Gives leases out on the LAN; the function ends that. */
async function serveLeases(machine: EdgeMachine, address: string): Promise<() => void> {
  const log = join(machine.lab.dir, "dnsmasq.log");
  const options = ["--port=0", "--no-daemon", "--conf-file=/dev/null", "--leasefile-ro", "--dhcp-authoritative"];
  const range = [`--dhcp-range=${address},${address},255.255.255.0,2m`, "--interface=eth0", "--no-ping"];
  const pid = startAside(machine.lan, ["dnsmasq", ...options, ...range], log);
  await waitFor("leases are given out", () => machine.sh("ss -lun || true", machine.lan).includes(":67"));
  return () => void process.kill(pid, "SIGKILL");
}

test("a lease that changes while a change is pending is the new one afterwards, and the rest is as it was", async () => {
  const machine = stage.machine("a");
  const stop = await serveLeases(machine, "10.9.0.100");
  const section = { interfaces: [WAN, { nic: "eth1", dhcp: true }] };
  await machine.apply(section);
  const hasLease = (address: string) => (): boolean =>
    machine.state().addresses.some((line) => line.includes("ifname=eth1") && line.includes(`local=${address} `));
  await waitFor("there is a lease", hasLease("10.9.0.100"), 60_000);
  const old = machine.state();

  await machine.put({ interfaces: [{ ...WAN, gateway: "192.168.1.99" }, section.interfaces[1]] });
  await waitFor("the change is made", () => differences(old, machine.state()).length > 0);
  stop();
  await serveLeases(machine, "10.9.0.150");
  // A cable that is pulled and plugged has every client ask anew.
  machine.sh(
    "ip link set eth0 down && sleep 1 && ip link set eth0 up && ip route replace default via 10.9.0.1 || true",
    machine.lan,
  );
  await waitFor("there is another lease", hasLease("10.9.0.150"), 60_000);
  const isBack = (): boolean => differences(old, machine.state()).every((line) => /eth1|10\.9\.0\./.test(line));
  await waitFor("the change is taken back", isBack, (WINDOW_SECONDS + 30) * 1000);
  expect(hasLease("10.9.0.150")()).toBe(true);
  expect(hasLease("10.9.0.100")()).toBe(false);
  await machine.untilOnline();
}, 240_000);
