// What can be done to a lab: each verb changes its state, and the packet filters and processes follow.
import { existsSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { addressOf, GATEWAY_PORT, namesOf, nodesOf, UPLINKS, type Site } from "./layout.ts";
import type { Lab } from "./lab.ts";
import { placesOf, startAside, type ProgramName } from "./programs.ts";
import { delayPortOf, gatewaysOf } from "./rules.ts";
import { LabError, until } from "./shell.ts";
import type { Direction, SiteFaults } from "./state.ts";

const DELAY_PROGRAM = join(import.meta.dirname, "delay-program.ts");

/** Nothing gets to a host or from it any more, and nobody is told. An edge is cut together with its site. */
export function cut(lab: Lab, host: string): void {
  lab.network.requireHost(lab.state, host);
  lab.change({ cut: [...new Set([...lab.state.cut, host])] });
  lab.network.enforce(lab.state);
}

/** Takes everything back that was done to a host, or to all of them; the addresses stay. */
export async function heal(lab: Lab, host?: string): Promise<void> {
  if (host !== undefined) lab.network.requireHost(lab.state, host);
  const hosts = host === undefined ? namesOf(lab.state.layout) : [host];
  const { cut, paused, faults } = lab.state;
  for (const name of hosts.filter((name) => paused.includes(name))) resume(lab, name);
  lab.change({
    cut: cut.filter((name) => !hosts.includes(name)),
    faults: Object.fromEntries(Object.entries(faults).filter(([name]) => !hosts.includes(name))),
  });
  for (const name of hosts.filter((name) => faults[name]?.lagMs !== undefined)) await endDelay(lab, name);
  lab.network.enforce(lab.state);
}

/** Makes every round trip between an edge and the gateways so much longer; 0 ends that. Connections that there are end. */
export async function lag(lab: Lab, edge: string, roundTripMs: number): Promise<void> {
  const site = requireEdge(lab, edge);
  if (!(roundTripMs >= 0 && roundTripMs <= 10_000)) throw new LabError("a lag is 0 to 10000 milliseconds");
  await endDelay(lab, edge);
  setFaults(lab, edge, roundTripMs === 0 ? {} : { lagMs: roundTripMs }, "lagMs");
  if (roundTripMs > 0) await startDelay(lab, site);
  lab.network.enforce(lab.state);
}

/** Loses a share of the packets of a site, at random; 0 ends that. */
export function drop(lab: Lab, edge: string, percent: number, direction: Direction): void {
  requireEdge(lab, edge);
  if (!(percent >= 0 && percent <= 100)) throw new LabError("a loss is 0 to 100 percent");
  setFaults(lab, edge, percent === 0 ? {} : { drop: { percent, direction } }, "drop");
  lab.network.enforce(lab.state);
}

/** No datagram leaves or enters a site, as behind a strict firewall. */
export function blockUdp(lab: Lab, edge: string): void {
  requireEdge(lab, edge);
  setFaults(lab, edge, { isUdpBlocked: true }, "isUdpBlocked");
  lab.network.enforce(lab.state);
}

/** Gives the uplink of a site, or a gateway, another public address; what used the old one is not told. Returns the new one. */
export function roam(lab: Lab, name: string): string {
  const place = lab.placeOf(name);
  if ("role" in place && place.role !== "gateway")
    throw new LabError("the controller is named in every license and stays");
  const owner = "role" in place ? place.name : place.edge;
  const moves = ((lab.state.moves[owner] ?? 0) + 1) % UPLINKS;
  lab.network.move(place, lab.state.moves[owner] ?? 0, moves);
  lab.change({ moves: { ...lab.state.moves, [owner]: moves } });
  lab.network.enforce(lab.state);
  return addressOf(place, moves);
}

/** Stops the programs of a host, whose kernel goes on taking connections. */
export function pause(lab: Lab, host: string): void {
  signal(lab, host, "SIGSTOP");
  lab.change({ paused: [...new Set([...lab.state.paused, host])] });
}

/** Lets them run again. */
export function resume(lab: Lab, host: string): void {
  signal(lab, host, "SIGCONT");
  lab.change({ paused: lab.state.paused.filter((name) => name !== host) });
}

function signal(lab: Lab, host: string, name: NodeJS.Signals): void {
  const programs: readonly ProgramName[] = nodesOf(lab.state.layout).includes(host)
    ? ["agent", "overlay"]
    : ["controller"];
  const pids = programs.flatMap((program) => lab.pidOf(host, program) ?? []);
  if (pids.length === 0) throw new LabError(`no program of ours runs on ${host}`);
  for (const pid of pids) process.kill(pid, name);
}

function requireEdge(lab: Lab, name: string): Site {
  const site = lab.state.layout.sites.find(({ edge }) => edge === name);
  const known = lab.state.layout.sites.map(({ edge }) => edge).join(", ");
  if (site === undefined) throw new LabError(`no edge is called ${name}; there are ${known}`);
  return site;
}

function setFaults(lab: Lab, edge: string, faults: SiteFaults, replaced: keyof SiteFaults): void {
  const others = Object.entries(lab.state.faults[edge] ?? {}).filter(([name]) => name !== replaced);
  const whole: SiteFaults = { ...Object.fromEntries(others), ...faults };
  lab.change({ faults: { ...lab.state.faults, [edge]: whole } });
}

const delayPid = (lab: Lab, edge: string): string => join(placesOf(lab.dir, edge).own, "delay.pid");

async function startDelay(lab: Lab, site: Site): Promise<void> {
  const log = join(placesOf(lab.dir, site.edge).own, "delay.log");
  rmSync(log, { force: true });
  const ways = gatewaysOf(lab.state).map(
    (gateway) => `${delayPortOf(lab.state, gateway)}=${lab.addressOf(gateway.name)}:${GATEWAY_PORT}`,
  );
  const roundTripMs = String(lab.state.faults[site.edge]?.lagMs ?? 0);
  const pid = startAside(lab.network.on(site.name), [process.execPath, DELAY_PROGRAM, roundTripMs, ...ways], log);
  writeFileSync(delayPid(lab, site.edge), `${pid}\n`);
  await until(`the delay of ${site.edge} is ready; see ${log}`, () => readFileSync(log, "utf8").includes("ready"));
}

async function endDelay(lab: Lab, edge: string): Promise<void> {
  const path = delayPid(lab, edge);
  if (!existsSync(path)) return;
  const pid = Number(readFileSync(path, "utf8"));
  const isRunning = (): boolean =>
    existsSync(`/proc/${pid}/cmdline`) && readFileSync(`/proc/${pid}/cmdline`, "utf8").includes("delay-program.ts");
  if (isRunning()) process.kill(pid, "SIGKILL");
  await until("the delay has ended", () => !isRunning());
  rmSync(path);
}
