import { execFile, spawnSync } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Bench } from "./bench.ts";
import { startCompose, type Cost } from "./containers/compose.ts";
import { startBenchNode, type BenchNode } from "./containers/node.ts";
import { atEnd } from "./ending.ts";
import { median, skip, type Figure } from "./figures.ts";
import { activityOf, fingerprint, memoryOf } from "./processes.ts";
import { delay } from "./programs.ts";

const run = promisify(execFile);
const MB = 1e6;
const SET = 20;
const MANY = 100;
const ROUNDS = 5;
const PASSES = 10;
/** After its start an agent collects garbage once; what follows a start is over by then. */
const SETTLE_MS = 30_000;
const DOCKER = "/usr/bin/docker";
const TOOLS = ["dockerd", "docker-registry", "docker-compose", DOCKER];

/** Measures requests, memory and time of containers against the engine's own tools. */
export const containers: Bench = {
  area: "containers",
  about: "containers of a real engine: requests, memory and time, against docker run and docker-compose",
  async run({ dir, say }) {
    if (process.getuid?.() !== 0) return [skip("everything", "needs root, since it starts a container engine")];
    const missing = TOOLS.filter((tool) => spawnSync("which", [tool]).status !== 0);
    if (missing.length > 0) return [skip("everything", `not installed: ${missing.join(", ")}`)];
    const node = await startBenchNode(join(dir, "n"));
    const close = atEnd(() => node.stage.close());
    try {
      say(`an agent without containers, ${SETTLE_MS / 1000} s to settle`);
      await restarted(node);
      const idle = memoryOf(agentOf(node));
      say(`a container more, and docker run, ${ROUNDS} times each`);
      const begun = await beginnings(node);
      say(`a set of ${SET}, and docker-compose with the same`);
      const set = await besideCompose(node, dir);
      say(`${MANY} containers`);
      return [...begun, ...set, ...(await many(node, idle))];
    } finally {
      await close();
    }
  },
};

async function restarted({ stage }: BenchNode): Promise<void> {
  await stage.endAgent();
  await stage.startAgent();
  await delay(SETTLE_MS);
}

/** `nsenter` and `setpriv` become the agent, so that the process that was started is the agent. */
const agentOf = ({ stage }: BenchNode): number => stage.pid;

async function beginnings(node: BenchNode): Promise<readonly Figure[]> {
  const { stage, image } = node;
  const ours: number[] = [];
  const byHand: number[] = [];
  // The network goes with the last container; both are to find it there.
  await node.add("beside");
  for (let round = 0; round <= ROUNDS; round += 1) {
    const ms = await node.add(`one-${round}`);
    const network = await networkOf(stage.engine.socketPath);
    const begun = performance.now();
    const settings = [
      "--network",
      network,
      "--restart",
      "unless-stopped",
      "--env",
      "RELEASE=0",
      "--log-driver",
      "local",
    ];
    await docker(stage.engine.socketPath, "run", "--detach", "--name", `hand-${round}`, ...settings, image);
    const handMs = performance.now() - begun;
    if (round > 0) {
      ours.push(ms);
      byHand.push(handMs);
    }
    await docker(stage.engine.socketPath, "rm", "--force", `hand-${round}`);
    await stage.remove(`one-${round}`);
    await stage.untilGone(`one-${round}`);
  }
  await stage.remove("beside");
  await stage.untilGone("beside");
  return [
    {
      what: "a new definition, from the call of the API until it runs",
      value: median(ours),
      unit: "ms",
      peer: { name: "docker run", value: median(byHand) },
      ratio: median(ours.map((ms, at) => ms / (byHand[at] ?? Number.NaN))),
      bar: { of: "ratio", most: 1.5 },
    },
  ];
}

async function docker(socketPath: string, ...args: readonly string[]): Promise<string> {
  return (await run(DOCKER, ["--host", `unix://${socketPath}`, ...args])).stdout;
}

/** The node's own network of containers. */
async function networkOf(socketPath: string): Promise<string> {
  const all = await docker(socketPath, "network", "ls", "--filter", "name=holdfast-", "--format", "{{.Name}}");
  return all.split("\n")[0] ?? "";
}

async function besideCompose(node: BenchNode, dir: string): Promise<readonly Figure[]> {
  const grown = await node.grow(0, SET);
  const passes = await node.passes(PASSES);
  const changed = await node.change(3, "1");
  const compose = await startCompose(join(dir, "compose"), node.stage.engine, node.image);
  const same = Array.from({ length: SET }, () => "0");
  const first = await compose.up(same);
  const again = await compose.up(same);
  const one = await compose.up(same.with(3, "1"));
  await compose.close();
  const beside = (what: string, ours: Cost, peer: Cost): readonly Figure[] => {
    const named = (value: number) => ({ name: "docker-compose", value });
    return [
      {
        what: `${SET} services, ${what}: time`,
        value: ours.ms,
        unit: "ms",
        peer: named(peer.ms),
        bar: { of: "ratio", most: 1 },
      },
      {
        what: `${SET} services, ${what}: requests to the engine`,
        value: ours.requests,
        unit: "",
        peer: named(peer.requests),
        bar: { of: "ratio", most: 1 },
      },
    ];
  };
  const quiet = { ms: median(passes.ms), requests: passes.requests / Math.max(passes.passes, 1) };
  return [
    {
      what: `${SET} services, all new: time`,
      value: grown,
      unit: "ms",
      peer: { name: "docker-compose", value: first.ms },
    },
    ...beside("no change", quiet, again),
    ...beside("one changed", changed, one),
  ];
}

async function many(node: BenchNode, idle: ReturnType<typeof memoryOf>): Promise<readonly Figure[]> {
  const { stage } = node;
  const grown = await node.grow(SET, MANY);
  const changed = await node.change(50, "1");
  await restarted(node);
  const full = memoryOf(agentOf(node));
  const [before, files] = [activityOf(agentOf(node)), ledgerOf(stage.stateDir)];
  const passes = await node.passes(PASSES);
  const isWritten = ledgerOf(stage.stateDir) !== files;
  const after = activityOf(agentOf(node));
  return [
    { what: `from ${SET} to ${MANY} containers`, value: grown / 1000, unit: "s" },
    {
      what: `${MANY} containers, no change: requests to the engine in a pass`,
      value: passes.requests / passes.passes,
      unit: "",
      bar: { of: "value", most: 2 },
    },
    { what: "such a pass", value: median(passes.ms), unit: "ms" },
    { what: "the ledger is written by them", value: isWritten ? 1 : 0, unit: "", bar: { of: "value", most: 0 } },
    { what: "processor time of them", value: after.cpuMs - before.cpuMs, unit: "ms" },
    {
      what: `one changed of ${MANY}: requests about the others`,
      value: changed.ofOthers,
      unit: "",
      bar: { of: "value", most: 0 },
    },
    { what: "all requests of it", value: changed.requests, unit: "" },
    { what: "from the call until it has been replaced", value: changed.ms, unit: "ms" },
    {
      what: `memory with ${MANY} containers above idle, resident`,
      value: (full.residentBytes - idle.residentBytes) / MB,
      unit: "MB",
      bar: { of: "value", most: 15 },
    },
    {
      what: "private dirty",
      value: (full.privateDirtyBytes - idle.privateDirtyBytes) / MB,
      unit: "MB",
      bar: { of: "value", most: 15 },
    },
  ];
}

/** The database of the state, which holds what is known of containers, as one text that differs when it was written. */
function ledgerOf(stateDir: string): string {
  return fingerprint(stateDir)
    .split("\n")
    .filter((line) => line.startsWith("state.db"))
    .join("\n");
}
