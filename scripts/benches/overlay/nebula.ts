import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Ports } from "../l4/contenders.ts";
import { startTool, until } from "../programs.ts";
import { carrier, type Carrier } from "./contenders.ts";
import type { Sites } from "./sites.ts";

const PORT = 4242;
const NODES = { gateway: "192.168.77.1", a: "192.168.77.2", b: "192.168.77.3" } as const;

/** Returns the reason why nebula cannot be compared; undefined if it can. */
export function whyNoNebula(): string | undefined {
  if (!existsSync("/usr/bin/nebula")) return "nebula is missing; install it with: apt-get install nebula";
  return existsSync("/dev/net/tun") ? undefined : "nebula needs /dev/net/tun";
}

/** Nebula in all three sites; the gateway is lighthouse and relay, and the edges cannot reach each other otherwise. */
export async function startNebula(parent: string, sites: Sites, to: Ports): Promise<Carrier> {
  const dir = join(parent, "nebula");
  mkdirSync(dir);
  command(dir, "nebula-cert", "ca", "-name", "bench");
  const programs = (["gateway", "a", "b"] as const).map((name) => {
    command(dir, "nebula-cert", "sign", "-name", name, "-ip", `${NODES[name]}/24`);
    const file = join(dir, `${name}.yml`);
    // What is JSON is YAML too.
    writeFileSync(file, JSON.stringify(configOf(dir, name, sites)));
    return startTool("nebula", ["-config", file], join(dir, `${name}.log`), sites[name].netOf);
  });
  await until("nebula carries", () => {
    const reach = ["--target", String(sites.a.netOf), "--net", "ping", "-c", "1", "-W", "1", NODES.b];
    return spawnSync("nsenter", reach).status === 0;
  });
  return carrier("nebula, relayed", to, programs, NODES.b);
}

function configOf(dir: string, name: keyof typeof NODES, sites: Sites): object {
  const isRelay = name === "gateway";
  const everything = [{ port: "any", proto: "any", host: "any" }];
  const way = `${name === "b" ? sites.gatewayForB : sites.gateway.address}:${PORT}`;
  return {
    pki: { ca: join(dir, "ca.crt"), cert: join(dir, `${name}.crt`), key: join(dir, `${name}.key`) },
    static_host_map: isRelay ? {} : { [NODES.gateway]: [way] },
    lighthouse: { am_lighthouse: isRelay, interval: 5, hosts: isRelay ? [] : [NODES.gateway] },
    listen: { host: "0.0.0.0", port: PORT },
    relay: isRelay ? { am_relay: true, use_relays: false } : { relays: [NODES.gateway], use_relays: true },
    tun: { dev: "nebula", mtu: 1300, tx_queue: 500 },
    firewall: { outbound: everything, inbound: everything },
    logging: { level: "warning" },
  };
}

function command(dir: string, program: string, ...args: readonly string[]): void {
  const { status, stderr, error } = spawnSync(program, args, { cwd: dir, encoding: "utf8" });
  if (status !== 0) throw new Error(`${program} ${args.join(" ")}: ${error?.message ?? stderr.trim()}`);
}
