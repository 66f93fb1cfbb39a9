import { join } from "node:path";
import { startAside } from "../../scripts/labs/programs.ts";
import type { EdgeMachine } from "./edge-machine.ts";
import { waitFor } from "./wait-for.ts";

/** Where leases are given out, and what they say. */
export interface LeaseServer {
  /** On the machine's LAN by default; else its router gives out leases of the network that has its WAN. */
  readonly of?: "lan" | "wan";
  /** The default gateway that it names; by default itself. */
  readonly gateway?: string;
}

/** Gives leases of one address out, each for two minutes; the function ends that. */
export async function serveLeases(
  machine: EdgeMachine,
  address: string,
  { of = "lan", gateway }: LeaseServer = {},
): Promise<() => void> {
  const [where, link] = of === "lan" ? [machine.lan, "eth0"] : [machine.router, "lan"];
  const log = join(machine.lab.dir, `${machine.name}-dnsmasq.log`);
  const options = ["--port=0", "--no-daemon", "--conf-file=/dev/null", "--leasefile-ro", "--dhcp-authoritative"];
  const range = [`--dhcp-range=${address},${address},255.255.255.0,2m`, `--interface=${link}`, "--no-ping"];
  const router = gateway === undefined ? [] : [`--dhcp-option=option:router,${gateway}`];
  const pid = startAside(where, ["dnsmasq", ...options, ...range, ...router], log);
  await waitFor("leases are given out", () => machine.sh("ss -lun || true", where).includes(":67"));
  return () => void process.kill(pid, "SIGKILL");
}
