// The demo of containers: a control plane, a node, a container engine and a registry, all real; everything lies below .demo/c/. The
// engine is the demo's own, with a network of its own, so that neither an engine of the machine nor its firewall is touched.
import { spawn, spawnSync, type ChildProcess } from "node:child_process";
import { existsSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { startContainerStage, type ContainerStage } from "../test/support/container-stage.ts";
import { containersTour } from "./demo-containers-tour.ts";
import type { Stop } from "./demo-tour.ts";

const DIR = ".demo/c";
const TOOLS = { dockerd: "docker.io", "docker-registry": "docker-registry", busybox: "busybox", iptables: "iptables" };
const LIMIT_MS = 20_000;
const isCheck = process.argv.includes("--check");
const running = new Set<ChildProcess>();
const stopped = new Promise<void>((resolve) => {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => resolve());
});

async function main(): Promise<void> {
  if (process.getuid?.() !== 0) throw new Error("needs root, since it starts a container engine");
  const missing = Object.entries(TOOLS).filter(([tool]) => spawnSync("which", [tool]).status !== 0);
  if (missing.length > 0)
    throw new Error(`apt-get install --no-install-recommends ${missing.map(([, name]) => name).join(" ")}`);
  if (existsSync(join(DIR, "e"))) throw new Error(`another demo runs in this folder; if not, remove ${DIR}`);
  rmSync(DIR, { recursive: true, force: true });
  mkdirSync(DIR, { recursive: true, mode: 0o700 });
  console.log("demo: starting a container engine, a registry, a control plane and a node");
  const stage = await startContainerStage({ dir: join(process.cwd(), DIR), restartsAgent: true });
  try {
    console.log("demo: making two images and giving them to the registry");
    const command = ["sh", "-c", "echo web is up; exec sleep 100000"];
    for (const tag of ["1", "3"]) await stage.publish("shop/web", tag, { command, env: [`RELEASE=${tag}`] });
    const tour = containersTour(stage, DIR);
    await Promise.race([isCheck ? check(tour) : show(tour, stage), stopped]);
  } finally {
    for (const child of running) if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
    await stage.close();
    rmSync(DIR, { recursive: true, force: true });
  }
}

async function check(tour: readonly Stop[]): Promise<void> {
  for (const { title, command, expect, isEventual = false, limitMs = LIMIT_MS } of tour) {
    console.log(`\n# ${title}\n$ ${command}`);
    const end = Date.now() + (isEventual ? limitMs : 0);
    let answer = await shell(command);
    while (!expect.test(answer) && Date.now() < end) {
      await new Promise((resolve) => setTimeout(resolve, 200));
      answer = await shell(command);
    }
    console.log(answer.trimEnd());
    if (!expect.test(answer)) throw new Error(`«${title}» did not answer with ${String(expect)}`);
  }
  console.log("\ndemo: every step worked");
}

async function show(tour: readonly Stop[], { url }: ContainerStage): Promise<void> {
  console.log(`\nA control plane (${url}) and a node are running. Try these in another terminal, from this folder:\n`);
  for (const { title, command } of tour) console.log(`  # ${title}\n  ${command}\n`);
  console.log("Ctrl-C stops everything.");
  await stopped;
}

/** What a command line prints; one that ends badly has printed what is wrong. */
async function shell(command: string): Promise<string> {
  const child = spawn("bash", ["--norc", "-c", command], { detached: true, stdio: ["ignore", "pipe", "inherit"] });
  running.add(child);
  const timer = setTimeout(() => child.pid !== undefined && process.kill(-child.pid, "SIGKILL"), 60_000);
  const said = await text(child.stdout);
  clearTimeout(timer);
  running.delete(child);
  return said;
}

try {
  await main();
} catch (error) {
  console.error(`demo: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
}
process.exit();
