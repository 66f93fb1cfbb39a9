import { spawn, type ChildProcess } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { CHANGING, changedPath, descriptorPath, parseTrace, type Call, type Thread } from "./strace-text.ts";
import { tempDir } from "../temp-dir.ts";

/** A program that waits for the tracer (`wait-for-tracer.ts`): arguments of the runtime, and its environment. */
export interface Launch {
  readonly args: readonly string[];
  /** The directory whose changes are recorded. */
  readonly stateDir: string;
  /** The port of the control plane, whose connections are recorded too. */
  readonly port?: number;
}

/** One state-changing system call of an operation. */
export interface Point {
  readonly thread: Thread;
  readonly name: string;
  /** The file below the state directory, without random parts of its name, or the control plane. */
  readonly target: string;
  /** Number of the call with this name on this target, from 1. */
  readonly occurrence: number;
  /** Number of the call with this name in its thread when recorded, as strace counts. */
  readonly nth: number;
}

const LIMIT_MS = 60_000;
const ATTEMPTS = 12;

/** Runs a program to its end with the expected status, and returns every changing system call of both threads. */
export async function recordCalls(launch: Launch, status = 0): Promise<readonly Call[]> {
  const { calls, code, output } = await trace(launch, ["main", "pool"], []);
  if (code !== status) throw new Error(`the program to record ended with ${code}: ${output}`);
  return calls;
}

/** Returns the points of a recording below the state directory or towards the control plane. */
export function pointsOf(calls: readonly Call[], launch: Launch): readonly Point[] {
  const counts = new Map<string, number>();
  const count = (key: string): number => {
    const next = (counts.get(key) ?? 0) + 1;
    counts.set(key, next);
    return next;
  };
  const sockets = new Set<string>();
  return calls.flatMap((call) => {
    const { thread, name } = call;
    const nth = count(`${thread} ${name}`);
    const target = targetOf(call, launch, sockets);
    if (target === undefined) return [];
    return [{ thread, name, target, occurrence: count(`${thread} ${name} ${target}`), nth }];
  });
}

/**
 * Runs a program and kills it with SIGKILL as it enters the call at `point`, which does not run. The number of some calls of the runtime
 * varies slightly: a run killed elsewhere, or not at all, is repeated with corrected counts. Some calls do not occur in every run: the last
 * run is returned even if killed elsewhere, since the checks hold anywhere.
 * @param launch makes a program with a state directory of its own; the one killed at the point is returned.
 * @throws {Error} when the last run was not killed at all.
 */
export async function runKilled<L extends Launch>(launch: () => L | Promise<L>, point: Point): Promise<L> {
  const where = describePoint(point);
  const seen = [point.nth];
  let last = "";
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    const it = await launch();
    const nth = mostFrequent(seen);
    const inject = ["-e", `inject=${point.name}:signal=SIGKILL:when=${nth}`];
    const { calls, signal, code, output } = await trace(it, [point.thread], inject);
    const isKilled = signal === "SIGKILL";
    const found = pointsOf(calls, it).find((other) => describePoint(other) === where);
    // Nothing follows the interrupted call, so it is the last of its name.
    if (isKilled && found?.nth === calls.filter(({ name }) => name === point.name).length) return it;
    if (isKilled && attempt === ATTEMPTS - 1) {
      console.log(`${where}: not met in ${ATTEMPTS} runs, the last was killed at call ${nth} of that name`);
      return it;
    }
    last = isKilled ? `killed at call ${nth}` : `not killed at call ${nth}, ended with ${code}: ${output}`;
    seen.push(found?.nth ?? (isKilled ? nth + 1 : point.nth));
  }
  throw new Error(`${where}: not killed there in ${ATTEMPTS} runs, the last was ${last}`);
}

/** Returns the most frequent number, the last one if there are several. */
function mostFrequent(numbers: readonly number[]): number {
  const count = (number: number): number => numbers.filter((other) => other === number).length;
  return numbers.reduce((best, number) => (count(number) >= count(best) ? number : best));
}

/** Describes a point. */
export function describePoint({ thread, name, occurrence, target }: Point): string {
  return `${name} ${occurrence} of the ${thread} thread on ${target}`;
}

/** Returns a path below the state directory, or below an open directory of the data store, without the random parts of temporary names. */
export function stableName(path: string, stateDir: string): string | undefined {
  const [, name] = /^\/proc\/self\/fd\/\d+\/(.+)$/.exec(path) ?? [];
  if (name !== undefined) return `STORE/${withoutId(name)}`;
  if (path !== stateDir && !path.startsWith(`${stateDir}/`)) return undefined;
  return withoutId(`STATE${path.slice(stateDir.length)}`)
    .replace(/\.[0-9a-f]{12}\.tmp(?=$|-)/, ".tmp")
    .replace(/^STATE\/restoring\.[0-9a-f]{12}/, "STATE/restoring");
}

const withoutId = (path: string): string => path.replace(/\.holdfast-[0-9a-f-]{36}\.part$/, ".part");

function targetOf(call: Call, { stateDir, port }: Launch, sockets: Set<string>): string | undefined {
  const behind = descriptorPath(call);
  if (call.name === "connect" && port !== undefined && call.args.includes(`htons(${port})`)) {
    if (behind !== undefined) sockets.add(behind);
    return "the control plane";
  }
  if (behind !== undefined && sockets.has(behind)) return "the control plane";
  const path = changedPath(call);
  return path === undefined ? undefined : stableName(path, stateDir);
}

interface Traced {
  readonly calls: readonly Call[];
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly output: string;
}

async function trace(launch: Launch, threads: readonly Thread[], inject: readonly string[]): Promise<Traced> {
  const file = join(tempDir(), "trace");
  const child = spawn(process.execPath, [...launch.args], {
    env: { ...process.env, UV_THREADPOOL_SIZE: "1" },
    stdio: ["ignore", "pipe", "pipe", "pipe", "pipe"],
  });
  const timer = setTimeout(() => child.kill("SIGKILL"), LIMIT_MS);
  try {
    const output = textOf(child);
    const ended = new Promise<Pick<Traced, "code" | "signal">>((resolve) => {
      child.once("close", (code, signal) => resolve({ code, signal }));
    });
    const early = await Promise.race([onceReady(child), ended]);
    if (early !== undefined) throw new Error(`the program ended with ${early.code} before it was ready: ${output()}`);
    const ids = threadIds(child.pid ?? 0);
    const attach = threads.flatMap((thread) => ["-p", String(ids[thread])]);
    const shape = ["-y", "-xx", "-s", "1048576", "-o", file, "-e", `trace=${CHANGING.join(",")}`, "-e", "signal=none"];
    const tracer = spawn("strace", [...shape, ...inject, ...attach], { stdio: ["ignore", "ignore", "pipe"] });
    const traced = new Promise((resolve) => tracer.once("close", resolve));
    await untilAttached(tracer, threads.length);
    const release = child.stdio[3];
    if (release !== null && release !== undefined) release.destroy();
    const end = await ended;
    await traced;
    const threadOf = (tid: number | undefined): Thread =>
      tid === undefined ? (threads[0] ?? "main") : tid === ids.main ? "main" : "pool";
    return { ...end, output: output(), calls: parseTrace(readFileSync(file, "utf8"), threadOf) };
  } finally {
    clearTimeout(timer);
    child.kill("SIGKILL");
  }
}

function textOf(child: ChildProcess): () => string {
  let text = "";
  const keep = (chunk: string): void => {
    text = (text + chunk).slice(-10_000);
  };
  child.stdout?.setEncoding("utf8").on("data", keep);
  child.stderr?.setEncoding("utf8").on("data", keep);
  return () => text;
}

function onceReady(child: ChildProcess): Promise<void> {
  const ready = child.stdio[4];
  return new Promise((resolve, reject) => {
    if (ready === null || ready === undefined) reject(new Error("no pipe"));
    else ready.once("data", () => resolve());
  });
}

/** The main thread has the process id; the pool's single thread has its name from libuv. */
export function threadIds(pid: number): Readonly<Record<Thread, number>> {
  const tasks = readdirSync(`/proc/${pid}/task`);
  const pool = tasks.filter((tid) => readFileSync(`/proc/${pid}/task/${tid}/comm`, "utf8").trim() === "libuv-worker");
  if (pool.length !== 1) throw new Error(`expected one thread in the pool, found ${pool.length}`);
  return { main: pid, pool: Number(pool[0]) };
}

/** Waits until strace has stopped every thread, so that all further calls are recorded. */
export function untilAttached(tracer: ChildProcess, count: number): Promise<void> {
  let printed = "";
  return new Promise((resolve, reject) => {
    tracer.once("error", reject);
    tracer.once("close", () => reject(new Error(`strace ended: ${printed}`)));
    tracer.stderr?.setEncoding("utf8").on("data", (chunk: string) => {
      printed += chunk;
      if ((printed.match(/ attached( with \d+ threads)?\n/g) ?? []).length >= count) resolve();
    });
  });
}

/** Records every call of a running process that changes a file below a directory, while `until` runs. */
export async function changesBelow(
  pid: number,
  directory: string,
  until: () => Promise<void>,
): Promise<readonly string[]> {
  const file = join(tempDir(), "trace");
  const shape = ["-f", "-y", "-xx", "-s", "64", "-o", file, "-e", `trace=${CHANGING.join(",")}`, "-e", "signal=none"];
  const tracer = spawn("strace", [...shape, "-p", String(pid)], { stdio: ["ignore", "ignore", "pipe"] });
  const ended = new Promise((resolve) => tracer.once("close", resolve));
  await untilAttached(tracer, 1);
  await until();
  tracer.kill("SIGTERM");
  await ended;
  return parseTrace(readFileSync(file, "utf8"), () => "main").flatMap((call) => {
    const target = changedPath(call);
    const name = target === undefined ? undefined : stableName(target, directory);
    return name === undefined ? [] : [`${call.name} ${name}`];
  });
}
