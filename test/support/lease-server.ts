import { join } from "node:path";
import { startAside } from "../../scripts/labs/programs.ts";
import type { EdgeMachine } from "./edge-machine.ts";
import { waitFor } from "./wait-for.ts";

/** Gives leases out on the LAN; the function ends that. */
export async function serveLeases(machine: EdgeMachine, address: string): Promise<() => void> {
  const log = join(machine.lab.dir, "dnsmasq.log");
  const options = ["--port=0", "--no-daemon", "--conf-file=/dev/null", "--leasefile-ro", "--dhcp-authoritative"];
  const range = [`--dhcp-range=${address},${address},255.255.255.0,2m`, "--interface=eth0", "--no-ping"];
  const pid = startAside(machine.lan, ["dnsmasq", ...options, ...range], log);
  await waitFor("leases are given out", () => machine.sh("ss -lun || true", machine.lan).includes(":67"));
  return () => void process.kill(pid, "SIGKILL");
}
