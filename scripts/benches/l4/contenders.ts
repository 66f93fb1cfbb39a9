import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { connectControl, type ControlClient } from "../../../src/host/overlay/control.ts";
import type { OverlayListener, OverlayTable } from "../../../src/protocol/overlay/overlay.ts";
import {
  BUNDLE,
  freePort,
  start,
  startHelper,
  startTool,
  until,
  type Running,
  type StartOptions,
} from "../programs.ts";

/** The servers that everything leads to, by what they do. */
export interface Ports {
  readonly source: number;
  readonly sink: number;
  readonly echo: number;
}

/** A process that carries connections from ports of its own to those of the servers. */
export interface Contender extends Running {
  readonly name: string;
  readonly ports: Ports;
}

/** Number of our processes that share the work, and of HAProxy's threads. */
export const WORKERS = 1;
const HAPROXY = "/usr/sbin/haproxy";

/** An overlay between the caller and a server of its own. */
export interface OverlayContender extends Contender {
  readonly control: ControlClient;
  /** Its table, with further listeners. */
  table(more: readonly OverlayListener[], change?: Partial<OverlayListener>): OverlayTable;
}

/** The overlay program of the bundle, with an agent that takes its records. */
export async function startOverlay(dir: string, to: Ports, options: StartOptions = {}): Promise<OverlayContender> {
  const runDir = join(dir, "run");
  const args = [BUNDLE, "overlay", "--state", join(dir, "state"), "--run", runDir];
  const overlay = start(args, `${dir}.log`, options);
  const path = join(runDir, "overlay.sock");
  await until("the overlay listens", () => existsSync(path));
  const control = await connectControl(path, { "flows.ended": () => undefined });
  const ports = await freePorts();
  let version = 0;
  const table: OverlayContender["table"] = (more, change) => {
    version += 1;
    const own = entries(ports, to).map(([port, target]) => Object.assign(aListener(port, target), change));
    return { format: 1, version, services: [], listeners: [...own, ...more] };
  };
  await control.peer.request("table.set", { table: table([]) });
  return { name: "overlay", ports, control, table, pid: overlay.pid, end: (signal) => overlay.end(signal ?? "SIGINT") };
}

/** A listener of 127.0.0.1 that leads to a port there. */
export function aListener(port: number, target: number): OverlayListener {
  return {
    key: `tcp:${port}`,
    connector: `c${port}`,
    protocol: "tcp",
    addresses: ["127.0.0.1"],
    port,
    target: { host: "127.0.0.1", port: target },
    maxFlows: 10_000,
    idleTimeoutMs: 86_400_000,
  };
}

/**
 * HAProxy as Debian ships it, without splice.
 * @throws when it is not installed, which its message explains.
 */
export async function startHaproxy(dir: string, to: Ports): Promise<Contender> {
  if (!existsSync(HAPROXY)) throw new Error(`${HAPROXY} is missing; install it with: apt-get install haproxy`);
  const ports = await freePorts();
  const config = [
    "global",
    `  nbthread ${WORKERS}`,
    "  nosplice",
    "  maxconn 8000",
    "defaults",
    "  mode tcp",
    "  timeout connect 5s",
    "  timeout client 1d",
    "  timeout server 1d",
    ...entries(ports, to).flatMap(([port, target]) => [
      `listen p${port}`,
      `  bind 127.0.0.1:${port}`,
      `  server s 127.0.0.1:${target}`,
    ]),
  ];
  const file = `${dir}.haproxy.cfg`;
  writeFileSync(file, `${config.join("\n")}\n`);
  const haproxy = startTool(HAPROXY, ["-db", "-f", file], `${dir}.haproxy.log`);
  return { name: "HAProxy", ports, ...haproxy };
}

/** A Node that pipes and does nothing else. */
export async function startPipe(to: Ports, options: StartOptions = {}): Promise<Contender> {
  const ports = await freePorts();
  const pairs = entries(ports, to).map(([port, target]) => `${port}:${target}`);
  const pipe = startHelper("l4/bare-pipe.ts", pairs, options);
  await pipe.ask("ready");
  return { name: "a bare Node pipe", ports, pid: pipe.pid, end: (signal) => pipe.end(signal) };
}

async function freePorts(): Promise<Ports> {
  return { source: await freePort(), sink: await freePort(), echo: await freePort() };
}

function entries(own: Ports, to: Ports): readonly (readonly [number, number])[] {
  return [
    [own.source, to.source],
    [own.sink, to.sink],
    [own.echo, to.echo],
  ];
}
