// Measures one area and prints what came out; scripts/bench is the way in.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { availableParallelism, constants, loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { api } from "./benches/api.ts";
import type { Bench } from "./benches/bench.ts";
import { containers } from "./benches/containers.ts";
import { controllerMemory } from "./benches/controller.ts";
import { dataStore } from "./benches/data-store.ts";
import { endAll } from "./benches/ending.ts";
import { isMet, summary, table } from "./benches/figures.ts";
import { heartbeat } from "./benches/heartbeat.ts";
import { idle } from "./benches/idle.ts";
import { l4 } from "./benches/l4.ts";
import { network } from "./benches/network.ts";
import { overlay } from "./benches/overlay.ts";
import { pipeline } from "./benches/pipeline.ts";
import { busyBetween } from "./benches/processes.ts";
import { delay } from "./benches/programs.ts";
import { reconcile } from "./benches/reconcile.ts";
import { reconnect } from "./benches/reconnect.ts";
import { startUp } from "./benches/start.ts";
import { store } from "./benches/store.ts";

const benches: readonly Bench[] = [
  idle,
  startUp,
  pipeline,
  heartbeat,
  controllerMemory,
  store,
  api,
  reconnect,
  reconcile,
  l4,
  overlay,
  network,
  containers,
  dataStore,
];
const BUSY = 0.25;
const LOOK_MS = 2000;
/** A shell's exit status for a program that a signal ended, less the signal's number. */
const SIGNALLED = 128;
const ENDING = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    options: {
      check: { type: "boolean", default: false },
      force: { type: "boolean", default: false },
      minutes: { type: "string", default: "1" },
      only: { type: "string", default: "" },
    },
    allowPositionals: true,
  });
  const minutes = Number(values.minutes);
  if (!(minutes > 0)) throw new Error("--minutes needs a number above 0");
  const only = values.only.split(",").filter((part) => part !== "");
  const [area, ...more] = positionals;
  if (area === undefined) {
    for (const { area, about } of benches) console.log(`${area.padEnd(12)}${about}`);
    return 0;
  }
  const bench = benches.find((candidate) => candidate.area === area);
  if (bench === undefined || more.length > 0) {
    console.error(
      `usage: scripts/bench ${benches.map(({ area }) => area).join("|")} [--check] [--force] [--minutes N] [--only PART,PART]`,
    );
    return 2;
  }
  if (!(await isCalm()) && !values.force) {
    console.error("bench: the machine is busy, so nothing would be comparable; wait, or give --force");
    return 3;
  }
  const ended = signalled();
  const dir = mkdtempSync(join(tmpdir(), "holdfast-bench-"));
  const cleanUp = async (): Promise<void> => {
    await endAll();
    // What was killed last may have written last.
    rmSync(dir, { recursive: true, force: true, maxRetries: 10 });
  };
  try {
    const running = bench.run({ minutes, only, dir, say: (line) => console.log(line) });
    const figures = await Promise.race([running, ended]);
    if (typeof figures === "string") {
      await cleanUp();
      // The run has not ended by itself, and would go on.
      process.exit(SIGNALLED + constants.signals[figures]);
    }
    console.log(`\n${table(figures)}\n\n${summary(area, figures)}`);
    return values.check && !figures.every(isMet) ? 1 : 0;
  } finally {
    await cleanUp();
  }
}

/** Resolves with the signal that is to end the bench; what fails from then on is what was taken from under it. */
function signalled(): Promise<(typeof ENDING)[number]> {
  return new Promise((resolve) => {
    for (const signal of ENDING) {
      process.on(signal, () => {
        process.on("uncaughtException", () => undefined);
        resolve(signal);
      });
    }
  });
}

/** Prints the load and tells whether this machine has hardly anything else to do. */
async function isCalm(): Promise<boolean> {
  const before = readFileSync("/proc/stat", "utf8");
  await delay(LOOK_MS);
  const busy = busyBetween(before, readFileSync("/proc/stat", "utf8"));
  const [minute = 0] = loadavg();
  const percent = Math.round(100 * busy);
  console.log(`${availableParallelism()} cores, ${percent} % busy, load ${minute.toFixed(2)}, Node ${process.version}`);
  return busy <= BUSY;
}

process.exitCode = await main();
