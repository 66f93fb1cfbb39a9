// The lab's command line; scripts/lab is the way in.
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { check } from "./labs/check.ts";
import { blockUdp, cut, drop, heal, lag, pause, resume, roam } from "./labs/faults.ts";
import { Lab } from "./labs/lab.ts";
import { connectSites, openGateways, startWeb } from "./labs/furnish.ts";
import { FULL, nodesOf } from "./labs/layout.ts";
import { placesOf, type ProgramName } from "./labs/programs.ts";
import { LabError, ownEnv } from "./labs/shell.ts";
import type { Direction } from "./labs/state.ts";
import { statusText } from "./labs/status.ts";

const DIR = ".lab";
const USAGE = `usage: scripts/lab VERB
  up                           builds the lab: a controller, gateways gw1 and gw2, edges a, b, c and d behind NAT
  down [--keep]                ends everything and takes it away; with --keep the files stay
  status                       hosts, programs, faults
  exec HOST COMMAND...         runs a command on a host; holdfast is that of the node
  api METHOD PATH [JSON|-]     calls the controller's API; {a} stands for the uid of node a; - reads the JSON from stdin
  cut HOST                     nothing gets to a host or from it any more
  heal [HOST]                  takes every fault back, or those of one host
  lag EDGE MS                  round trips between an edge and the gateways take so much longer; 0 ends it
  drop EDGE PERCENT [in|out]   loses packets of the edge's site; 0 ends it
  block-udp EDGE               no datagram passes the edge's router
  roam EDGE|GATEWAY            gives it another public address
  pause HOST, resume HOST      stops the programs of a host, whose kernel goes on taking connections
  restart PROGRAM HOST         agent or overlay of a node, or the controller
  kill PROGRAM HOST            at once, as the kernel does when memory is short
  start agent NODE             after it was killed
  upgrade NODE                 replaces its overlay as an upgrade does, without cutting a flow
  check                        runs the tour on a lab of its own and says which step failed`;

async function main([verb = "", ...args]: readonly string[]): Promise<number> {
  requireRoot();
  const [first = "", second = "", third] = args;
  switch (verb) {
    case "up":
      takeDownOnSignals();
      await up();
      break;
    case "down":
      await Lab.down(DIR, { keepsFiles: first === "--keep" });
      break;
    case "check":
      takeDownOnSignals();
      return check(DIR, up);
    case "status":
      console.log(await statusText(Lab.open(DIR)));
      break;
    case "exec":
      return execute(Lab.open(DIR), first, args.slice(1));
    case "api": {
      // An argument can have no more than 128 KiB (execve(2)).
      const body = third === "-" ? readFileSync(0, "utf8") : third;
      const { status, text } = await Lab.open(DIR).ask(first, second, body);
      console.log(text);
      return status < 400 ? 0 : 1;
    }
    case "cut":
      cut(Lab.open(DIR), first);
      break;
    case "heal":
      await heal(Lab.open(DIR), args[0]);
      break;
    case "lag":
      await lag(Lab.open(DIR), first, numberOf(second));
      break;
    case "drop":
      drop(Lab.open(DIR), first, numberOf(second), directionOf(third));
      break;
    case "block-udp":
      blockUdp(Lab.open(DIR), first);
      break;
    case "roam":
      console.log(`${first} has ${roam(Lab.open(DIR), first)}`);
      break;
    case "pause":
      pause(Lab.open(DIR), first);
      break;
    case "resume":
      resume(Lab.open(DIR), first);
      break;
    case "restart":
      await Lab.open(DIR).restart(programOf(first), first === "controller" ? first : second);
      break;
    case "kill":
      await Lab.open(DIR).kill(programOf(first), first === "controller" ? first : second);
      break;
    case "start":
      if (first !== "agent")
        throw new LabError("an overlay is started by its agent, and the controller with 'restart'");
      await Lab.open(DIR).startAgent(second);
      break;
    case "upgrade":
      await Lab.open(DIR).upgrade(first);
      break;
    default:
      console.error(USAGE);
      return 2;
  }
  return 0;
}

async function up(): Promise<void> {
  mkdirSync(DIR, { recursive: true, mode: 0o700 });
  const say = (line: string): void => console.log(`lab: ${line}`);
  const lab = await Lab.up(DIR, FULL, say);
  say("gateways, a web server on site B, a connector on site A");
  await openGateways(lab, true);
  await startWeb(lab, "web");
  await connectSites(lab, "a", "b", "web");
  say(`up; nodes: ${nodesOf(FULL).join(", ")}`);
}

/** Removes the incomplete lab on a signal. */
function takeDownOnSignals(): void {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.once(signal, () => {
      void Lab.down(DIR, { keepsFiles: true }).finally(() => process.exit(130));
    });
  }
}

/** Runs a command on a host as if its shell had been opened there. */
function execute(lab: Lab, host: string, command: readonly string[]): number {
  lab.network.requireHost(lab.state, host);
  const { state, run } = placesOf(lab.dir, host);
  const own = ownEnv();
  const [file = "ip", ...args] = [...lab.network.on(host), ...(command.length > 0 ? command : ["bash"])];
  const { status, error } = spawnSync(file, args, {
    stdio: "inherit",
    env: { ...own, PATH: [import.meta.dirname, own["PATH"]].join(delimiter), HOLDFAST_STATE: state, HOLDFAST_RUN: run },
  });
  if (error !== undefined) throw new LabError(`cannot run ${file}: ${error.message}`);
  return status ?? 1;
}

function requireRoot(): void {
  if (process.getuid?.() !== 0) throw new LabError("needs root, since it makes network namespaces: sudo scripts/lab …");
  const tools = { ip: "iproute2", nft: "nftables", curl: "curl" };
  const path = `${ownEnv()["PATH"] ?? ""}${delimiter}/usr/sbin${delimiter}/sbin`;
  process.env["PATH"] = path;
  const missing = Object.entries(tools).filter(([tool]) => spawnSync(tool, ["--version"]).error !== undefined);
  if (missing.length > 0)
    throw new LabError(`needs ${missing.map(([tool, name]) => `${tool} (package ${name})`).join(", ")}`);
}

function numberOf(text: string): number {
  if (!/^\d+(\.\d+)?$/.test(text)) throw new LabError(`'${text}' is no number`);
  return Number(text);
}

function directionOf(text = "both"): Direction {
  if (text === "in" || text === "out" || text === "both") return text;
  throw new LabError(`'${text}' is neither in nor out`);
}

function programOf(text: string): ProgramName {
  if (text === "agent" || text === "overlay" || text === "controller") return text;
  throw new LabError(`'${text}' is neither agent, overlay nor controller`);
}

process.chdir(join(import.meta.dirname, ".."));
try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  console.error(
    `lab: ${error instanceof LabError ? error.message : String(error instanceof Error ? error.stack : error)}`,
  );
  process.exitCode = 1;
}
