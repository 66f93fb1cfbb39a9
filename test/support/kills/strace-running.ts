import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pointsOf, threadIds, untilAttached, type Point } from "./strace.ts";
import { CHANGING, parseTrace, type Call, type Thread } from "./strace-text.ts";
import { tempDir } from "../temp-dir.ts";

/** Calls that create and end processes, and wait for their end. */
const CHILD_CALLS: readonly string[] = ["clone", "clone3", "fork", "vfork", "kill", "wait4", "waitid"];

/** A traced program whose pool has one thread (`UV_THREADPOOL_SIZE=1`). */
export interface Tracing {
  /** Returns every recorded call, once the program or the tracing has ended. */
  end(): Promise<readonly Call[]>;
}

/** Traces a running program from now on; `inject` is an option of strace(1) that changes calls. */
export async function traceRunning(pid: number, threads: readonly Thread[], inject?: string): Promise<Tracing> {
  const file = join(tempDir(), "trace");
  const ids = threadIds(pid);
  const traced = [...CHANGING, ...CHILD_CALLS].join(",");
  const shape = ["-y", "-xx", "-s", "256", "-o", file, "-e", `trace=${traced}`, "-e", "signal=none"];
  const attach = threads.flatMap((thread) => ["-p", String(ids[thread])]);
  const tampering = inject === undefined ? [] : ["-e", `inject=${inject}`];
  const tracer = spawn("strace", [...shape, ...tampering, ...attach], { stdio: ["ignore", "ignore", "pipe"] });
  const ended = new Promise((resolve) => tracer.once("close", resolve));
  await untilAttached(tracer, threads.length);
  const threadOf = (tid: number | undefined): Thread =>
    tid === undefined ? (threads[0] ?? "main") : tid === ids.main ? "main" : "pool";
  return {
    async end() {
      tracer.kill("SIGTERM");
      await ended;
      return parseTrace(readFileSync(file, "utf8"), threadOf);
    },
  };
}

/** Returns the points at which a program changes files below its directories, or starts, ends or awaits another. */
export function killPointsOf(calls: readonly Call[], directories: readonly string[]): readonly Point[] {
  const counts = new Map<string, number>();
  const starts = calls.flatMap((call) => {
    const { thread, name } = call;
    const key = `${thread} ${name}`;
    const nth = (counts.get(key) ?? 0) + 1;
    counts.set(key, nth);
    // A thread is not a child, and a signal 0 has no effect.
    const doesNothing = call.args.includes("CLONE_THREAD") || (name === "kill" && call.args.endsWith(", 0"));
    if (!CHILD_CALLS.includes(name) || doesNothing) return [];
    return [{ thread, name, target: "a child", occurrence: nth, nth }];
  });
  return [...directories.flatMap((stateDir) => pointsOf(calls, { args: [], stateDir })), ...starts];
}
