import { spawnSync } from "node:child_process";
import { readlinkSync } from "node:fs";
import { join } from "node:path";
import { startTool, until, type Running } from "../programs.ts";

/** A network namespace, which lasts as long as the process that holds it. */
export interface Site {
  /** The process whose network it is. */
  readonly netOf: number;
  /** Its address on the way to the gateway; the gateway's own on the way to site A. */
  readonly address: string;
}

/** Two sites that see a gateway between them and not each other. */
export interface Sites {
  readonly a: Site;
  readonly b: Site;
  readonly gateway: Site;
  /** The gateway's address as site B sees it. */
  readonly gatewayForB: string;
  end(): Promise<void>;
}

/** Returns the reason why network namespaces are impossible here; undefined if they are possible. */
export function whyNoSites(): string | undefined {
  const { status, error } = spawnSync("unshare", ["--net", "ip", "link", "show", "lo"]);
  if (error !== undefined) return `unshare(1) and ip(8) are needed: ${error.message}`;
  return status === 0 ? undefined : "network namespaces can be made by root alone";
}

/**
 * Makes them: 10.77.1.0/24 between A and the gateway, 10.77.2.0/24 between B and the gateway, nothing forwarded.
 * @throws when a command fails, in its words.
 */
export async function makeSites(dir: string): Promise<Sites> {
  const [a, b, gateway] = await Promise.all([held(dir), held(dir), held(dir)]);
  ip(gateway, "link", "add", "to-a", "type", "veth", "peer", "name", "uplink", "netns", String(a.pid));
  ip(gateway, "link", "add", "to-b", "type", "veth", "peer", "name", "uplink", "netns", String(b.pid));
  for (const [holder, link, address] of [
    [gateway, "to-a", "10.77.1.1"],
    [gateway, "to-b", "10.77.2.1"],
    [a, "uplink", "10.77.1.2"],
    [b, "uplink", "10.77.2.2"],
  ] as const) {
    ip(holder, "address", "add", `${address}/24`, "dev", link);
    ip(holder, "link", "set", link, "up");
    ip(holder, "link", "set", "lo", "up");
  }
  return {
    a: { netOf: a.pid, address: "10.77.1.2" },
    b: { netOf: b.pid, address: "10.77.2.2" },
    gateway: { netOf: gateway.pid, address: "10.77.1.1" },
    gatewayForB: "10.77.2.1",
    async end() {
      await Promise.all([a, b, gateway].map((holder) => holder.end("SIGKILL")));
    },
  };
}

async function held(dir: string): Promise<Running> {
  const holder = startTool("unshare", ["--net", "sleep", "infinity"], join(dir, "sites.log"));
  const own = readlinkSync("/proc/self/ns/net");
  await until("there is a namespace", () => readlinkSync(`/proc/${holder.pid}/ns/net`) !== own);
  return holder;
}

function ip(holder: Running, ...args: readonly string[]): void {
  const { status, stderr } = spawnSync("nsenter", ["--target", String(holder.pid), "--net", "ip", ...args], {
    encoding: "utf8",
  });
  if (status !== 0) throw new Error(`ip ${args.join(" ")}: ${stderr.trim()}`);
}
