import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { startAside } from "../../../scripts/labs/programs.ts";
import type { EdgeMachine } from "./edge-machine.ts";
import { waitFor } from "../wait-for.ts";

/** Network and contents of leases. */
export interface LeaseServer {
  /** On the machine's LAN by default; else the router of its WAN serves leases. */
  readonly of?: "lan" | "wan";
  /** The default gateway in leases; by default the server itself. */
  readonly gateway?: string;
  /** The name server in leases, none by default; only with the default lease time. */
  readonly dns?: string;
  /** Lease time in seconds; two minutes by default. */
  readonly seconds?: number;
}

/** Serves leases of one address; the returned function stops that. */
export async function serveLeases(
  machine: EdgeMachine,
  address: string,
  { of = "lan", gateway, dns, seconds }: LeaseServer = {},
): Promise<() => void> {
  const [where, link] = of === "lan" ? [machine.lan, "eth0"] : [machine.router, "lan"];
  const base = join(machine.lab.dir, machine.name);
  const command =
    seconds === undefined
      ? dnsmasq(address, link, { gateway, dns })
      : udhcpd(base, { address, link, gateway, seconds });
  const pid = startAside(where, command, `${base}-leases.log`);
  await waitFor("leases are given out", () => machine.sh("ss -lun || true", where).includes(":67"));
  return () => void process.kill(pid, "SIGKILL");
}

function dnsmasq(
  address: string,
  link: string,
  { gateway, dns }: Readonly<Record<"gateway" | "dns", string | undefined>>,
): readonly string[] {
  const options = ["--port=0", "--no-daemon", "--conf-file=/dev/null", "--leasefile-ro", "--dhcp-authoritative"];
  const range = [`--dhcp-range=${address},${address},255.255.255.0,2m`, `--interface=${link}`, "--no-ping"];
  const router = gateway === undefined ? [] : [`--dhcp-option=option:router,${gateway}`];
  const resolver = dns === undefined ? [] : [`--dhcp-option=option:dns-server,${dns}`];
  return ["dnsmasq", ...options, ...range, ...router, ...resolver];
}

interface ShortLease {
  readonly address: string;
  readonly link: string;
  readonly gateway: string | undefined;
  readonly seconds: number;
}

/** The server of busybox(1), since dnsmasq(8) serves no lease below two minutes. It names no gateway by default. */
function udhcpd(base: string, { address, link, gateway, seconds }: ShortLease): readonly string[] {
  const lines = [
    `start ${address}`,
    `end ${address}`,
    `interface ${link}`,
    "max_leases 1",
    `min_lease ${seconds}`,
    `lease_file ${base}-udhcpd.leases`,
    `pidfile ${base}-udhcpd.pid`,
    "option subnet 255.255.255.0",
    ...(gateway === undefined ? [] : [`option router ${gateway}`]),
    `option lease ${seconds}`,
  ];
  writeFileSync(`${base}-udhcpd.conf`, `${lines.join("\n")}\n`);
  writeFileSync(`${base}-udhcpd.leases`, "");
  return ["busybox", "udhcpd", "-f", "-a", "0", `${base}-udhcpd.conf`];
}
