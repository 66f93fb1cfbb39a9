// The demo itself: everything it makes lies below .demo/, and paths stay relative so that sockets have short names.
import { spawn, type ChildProcess } from "node:child_process";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import type { Server } from "node:http";
import { createServer } from "node:net";
import { text } from "node:stream/consumers";
import { tourOf, type Stop } from "./demo-tour.ts";
import { startWeb } from "./demo-web.ts";

const DIR = ".demo";
const HOLDFAST = `scripts/holdfast`;
const RUN = `--run ${DIR}/run`;
const FLAGS = ["--disable-sigusr1", "--disable-warning=ExperimentalWarning"];
const isCheck = process.argv.includes("--check");
const children: ChildProcess[] = [];
/** Those of the children that end in order when they are told to. */
const programs = new Set<ChildProcess>();
let web: Server | undefined;
const OWN_PID = `${DIR}/demo.pid`;
/** Files that the demo makes below .demo/; it leaves all others alone. */
const MADE = ["controller", "node", "run", "license", "controller.log", "agent.log", "broken", "connectors", "large"];
const stopped = new Promise<void>((resolve) => {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => resolve());
});

async function main(): Promise<void> {
  mkdirSync(DIR, { recursive: true, mode: 0o700 });
  requireAlone();
  console.log("demo: making room");
  await endLeftovers();
  writeFileSync(OWN_PID, `${process.pid}\n`);
  const port = await freePort(8480);
  const url = `http://127.0.0.1:${port}`;
  start("controller", [
    "controller",
    "--listen",
    `127.0.0.1:${port}`,
    "--data",
    `${DIR}/controller`,
    "--run",
    `${DIR}/run`,
  ]);
  await until("the control plane answers", async () => (await fetch(`${url}/healthz`)).ok);
  const key = readFileSync(`${DIR}/controller/admin.key`, "utf8").trim();
  const license = await fetch(`${url}/node/license?name=demo&type=Node`, { headers: { authorization: key } });
  if (!license.ok) throw new Error(`no license: HTTP ${license.status} ${await license.text()}`);
  writeFileSync(`${DIR}/license`, await license.text(), { mode: 0o600 });
  startAgent();
  await until("the agent answers", () => existsSync(`${DIR}/run/admin.sock`));
  await shell(`${HOLDFAST} register ${DIR}/license --state ${DIR}/node ${RUN}`);
  const uid = await until("the node is online and has reported itself", async () => {
    const query = "projection[]=online&projection[0][0]=shadow&projection[0][1]=reported&projection[0][2]=memory";
    const nodes = (await (await fetch(`${url}/node?${query}`, { headers: { authorization: key } })).json()) as {
      uid: string;
      online: boolean;
      shadow: { reported?: { memory?: number } };
    }[];
    return nodes.find((node) => node.online && node.shadow.reported?.memory !== undefined)?.uid;
  });
  const webPort = await freePort(8481);
  web = await startWeb(webPort);
  const tour = tourOf({ dir: DIR, url, port, uid, webPort, connectorPort: await freePort(8482) });
  if (isCheck) await check(tour);
  else await show(tour);
}

async function check(tour: readonly Stop[]): Promise<void> {
  for (const { title, command, expect, isEventual = false } of tour) {
    console.log(`\n# ${title}\n$ ${command}`);
    const answer = isEventual ? await eventually(command, expect) : await shell(command);
    console.log(answer.length > 1500 ? `${answer.slice(0, 1500)}…` : answer.trimEnd());
    if (!expect.test(answer)) throw new Error(`«${title}» did not answer with ${String(expect)}`);
  }
  console.log("\ndemo: every step worked");
}

/** The answer that is waited for, or the last one. */
async function eventually(command: string, expect: RegExp): Promise<string> {
  const end = Date.now() + 20_000;
  for (;;) {
    const answer = await shell(command);
    if (expect.test(answer) || Date.now() > end) return answer;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

async function show(tour: readonly Stop[]): Promise<void> {
  console.log("\nA control plane and a node are running. Try these in another terminal, from this folder:\n");
  for (const { title, command } of tour) console.log(`  # ${title}\n  ${command}\n`);
  console.log("The node's status follows; Ctrl-C stops everything.\n");
  const watch = spawn(HOLDFAST, ["status", "--watch", "--run", `${DIR}/run`], { stdio: "inherit" });
  children.push(watch);
  programs.add(watch);
  await Promise.race([new Promise((resolve) => watch.once("exit", resolve)), stopped]);
}

function start(name: string, args: readonly string[], onKilled?: () => void): void {
  const out = openSync(`${DIR}/${name}.log`, "a", 0o600);
  // In a group of its own, so that the terminal's Ctrl-C reaches it through us alone.
  const child = spawn(process.execPath, [...FLAGS, "dist/holdfast.mjs", ...args], {
    detached: true,
    stdio: ["ignore", out, out],
  });
  closeSync(out);
  child.once("exit", (code, signal) => {
    if (!children.includes(child)) return;
    children.splice(children.indexOf(child), 1);
    if (signal === "SIGKILL" && onKilled !== undefined) return onKilled();
    console.error(`demo: the ${name} ended by itself (${code ?? signal}); see ${DIR}/${name}.log`);
    process.exitCode = 1;
  });
  children.push(child);
  programs.add(child);
}

/** One that is killed is started again, as a service manager would. */
function startAgent(): void {
  start("agent", ["agent", "--state", `${DIR}/node`, "--run", `${DIR}/run`], startAgent);
}

/** Runs one command line and gives what it printed; that something needs attention is still an answer. */
async function shell(command: string): Promise<string> {
  // The web server of this process must go on meanwhile.
  const child = spawn("bash", ["--norc", "-c", command], { detached: true, stdio: ["ignore", "pipe", "pipe"] });
  children.push(child);
  const timer = setTimeout(() => endGroup(child), 60_000);
  const [stdout, stderr, status] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    new Promise<number | null>((resolve) => child.once("exit", resolve)),
  ]);
  clearTimeout(timer);
  children.splice(children.indexOf(child), 1);
  const isAnswer = status === 0 || (status === 5 && / (health|why|connectors) --run/.test(command));
  if (!isAnswer) throw new Error(`exit status ${status}: ${command}\n${stdout}${stderr}`);
  return stdout;
}

function endGroup({ pid }: ChildProcess): void {
  if (pid !== undefined) process.kill(-pid, "SIGKILL");
}

async function until<T>(what: string, probe: () => T | Promise<T>): Promise<Exclude<T, undefined | false>> {
  const end = Date.now() + 30_000;
  let last: unknown;
  while (Date.now() < end) {
    try {
      const value = await probe();
      if (value !== undefined && value !== false) {
        console.log(`demo: ${what}`);
        return value as Exclude<T, undefined | false>;
      }
    } catch (error) {
      last = error;
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`waited in vain until ${what}; see ${DIR}/*.log`, { cause: last });
}

async function freePort(wanted: number): Promise<number> {
  for (const port of [wanted, 0]) {
    const server = createServer();
    const found = await new Promise<number | undefined>((resolve) => {
      server.once("error", () => resolve(undefined));
      server.listen(port, "127.0.0.1", () => {
        const address = server.address();
        resolve(typeof address === "object" && address !== null ? address.port : undefined);
      });
    });
    await new Promise((resolve) => server.close(resolve));
    if (found !== undefined) return found;
  }
  throw new Error("no free port on 127.0.0.1");
}

/** Ends what an interrupted demo left running, by the command lines of its pid files' processes. */
async function endLeftovers(): Promise<void> {
  for (const name of ["agent", "controller"]) await endByPidFile(name, "SIGTERM");
  await endOverlay();
  for (const name of MADE) rmSync(`${DIR}/${name}`, { recursive: true, force: true });
}

/** The overlay outlives whoever started it, and SIGINT ends it without waiting for its flows. */
async function endOverlay(): Promise<void> {
  await endByPidFile("overlay", "SIGINT");
}

async function endByPidFile(name: string, signal: NodeJS.Signals): Promise<void> {
  const path = `${DIR}/run/${name}.pid`;
  if (!existsSync(path)) return;
  const pid = readFileSync(path, "utf8").trim();
  const isOurs = (): boolean => /^\d+$/.test(pid) && /dist\/(?:holdfast|overlay)\.mjs/.test(commandLineOf(pid));
  if (!isOurs()) return;
  process.kill(Number(pid), signal);
  for (const end = Date.now() + 10_000; isOurs() && Date.now() < end;) {
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  if (isOurs()) process.kill(Number(pid), "SIGKILL");
}

/** Refuses to take the ground from under a demo that runs. */
function requireAlone(): void {
  const pid = existsSync(OWN_PID) ? readFileSync(OWN_PID, "utf8").trim() : "";
  const isRunning = /^\d+$/.test(pid) && commandLineOf(pid).includes("scripts/demo.ts");
  if (isRunning) throw new Error(`another demo runs in this folder, as process ${pid}; end it first`);
}

function commandLineOf(pid: string): string {
  const path = `/proc/${pid}/cmdline`;
  return existsSync(path) ? readFileSync(path, "utf8") : "";
}

async function stopAll(): Promise<void> {
  for (const child of children.splice(0).reverse()) {
    if (child.exitCode !== null) continue;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    if (programs.has(child)) child.kill("SIGTERM");
    else endGroup(child);
    const timer = setTimeout(() => child.kill("SIGKILL"), 10_000);
    await ended;
    clearTimeout(timer);
  }
  await endOverlay();
  web?.close().closeAllConnections();
}

try {
  await Promise.race([main(), stopped]);
} catch (error) {
  console.error(`demo: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
} finally {
  await stopAll();
  if (existsSync(OWN_PID) && readFileSync(OWN_PID, "utf8").trim() === String(process.pid)) rmSync(OWN_PID);
  process.exit();
}
