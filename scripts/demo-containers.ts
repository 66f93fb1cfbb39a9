// The demo of containers: a control plane, a node, a container engine and a registry, all real; everything lies below .demo/c/. The
// engine is the demo's own, with a network of its own, so that neither an engine of the machine nor its firewall is touched.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { startContainerStage } from "../test/support/containers/container-stage.ts";
import { containersTour } from "./demo-containers-tour.ts";
import { tourSteps } from "./demo-steps.ts";

const DIR = ".demo/c";
const TOOLS = { dockerd: "docker.io", "docker-registry": "docker-registry", busybox: "busybox", iptables: "iptables" };
const isCheck = process.argv.includes("--check");
const steps = tourSteps();
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
    if (!isCheck) steps.show(tour, `A control plane (${stage.url}) and a node are running.`);
    await Promise.race([isCheck ? steps.check(tour) : stopped, stopped]);
  } finally {
    steps.end();
    await stage.close();
    rmSync(DIR, { recursive: true, force: true });
  }
}

try {
  await main();
} catch (error) {
  console.error(`demo: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
}
process.exit();
