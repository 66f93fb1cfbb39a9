import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { Engine } from "../../../src/agent/reconcile/engine.ts";
import type { Prover } from "../../../src/agent/reconcile/prover.ts";
import { Checkpoint } from "../../../src/checkpoint/checkpoint.ts";
import { restore, watch } from "../../../src/guard/guard.ts";
import { guardDeps } from "../../../src/guard/main.ts";
import { systemClock } from "../../../src/host/clock.ts";
import { hostDeadMan } from "../../../src/host/process/dead-man.ts";
import { hostExec } from "../../../src/host/process/exec.ts";
import { hostFiles } from "../../../src/host/files/files.ts";
import { parseBootId } from "../../../src/host/proc.ts";
import { fileSections } from "./checkpoint-machine.ts";
import { testCommit } from "./commit.ts";

/** The task of an agent in a process of its own: its machine and state in `dir`. */
export interface ChildTask {
  readonly dir: string;
  readonly config: Record<string, unknown>;
  readonly mode: "save" | "try";
  readonly seconds: number;
}

/** A prover whose targets are reached if the file `reached` names them with `yes`. */
function fileProver(dir: string): Prover {
  const look = (): boolean => readFileSync(join(dir, "reached"), "utf8").trim() === "yes";
  const unreached = { target: "control plane 192.0.2.1:443", message: "connection timed out" };
  return {
    baseline: () => ({ session: true, gateways: [] }),
    attempt: () => Promise.resolve(look() ? [] : [unreached]),
    controlPlane: () => Promise.resolve(look() ? undefined : unreached),
    servingMs: () => Promise.resolve(undefined),
  };
}

/** Applies a configuration as the agent does, until asked to stop; writes its state to `state`. */
async function agent({ dir, config, mode, seconds }: ChildTask): Promise<void> {
  const clock = systemClock();
  const files = hostFiles();
  const checkpoint = new Checkpoint(files, join(dir, "desired"));
  const start = hostDeadMan(hostExec(clock));
  const say = (): void => {
    const { window, heldChange, lastRollback } = commit;
    const state = { window: window?.state, held: heldChange.current?.is, last: lastRollback?.code, standings };
    // Written completely before the rename.
    writeFileSync(join(dir, "state.new"), JSON.stringify(state));
    renameSync(join(dir, "state.new"), join(dir, "state"));
  };
  let standings: readonly string[] = [];
  const commit = testCommit(join(dir, "desired"), clock, {
    checkpoint,
    bootId: parseBootId(readFileSync("/proc/sys/kernel/random/boot_id", "utf8")) ?? "",
    prover: fileProver(dir),
    watch: (id, waitMs, signal) => start({ stateDir: dir, runDir: dir, isManaged: false, id, waitMs }, signal),
    request: () => ({ mode, seconds, isLocal: false }),
    onRelease: () => engine.reevaluate("commit"),
    onStanding: say,
  });
  const engine = new Engine({
    clock,
    random: Math.random,
    log: pino({ level: "silent" }),
    sections: fileSections(files, dir),
    checkpoint,
    commit,
    onReport: () => {
      standings = engine.standings.map(({ section, outcome }) => `${section} ${outcome.state}`);
      say();
    },
    onFault: () => undefined,
  });
  engine.start();
  engine.set({ version: { node: 2 }, config, isActive: true });
  const alive = setInterval(() => undefined, 1000);
  process.once("SIGTERM", () => {
    clearInterval(alive);
    void engine.close();
    commit.close();
  });
}

async function main([program = "", task = "", ...rest]: readonly string[]): Promise<void> {
  if (program === "agent") return agent(JSON.parse(task) as ChildTask);
  const value = (name: string): string | undefined => rest[rest.indexOf(name) + 1];
  const dir = value("--state") ?? "";
  const { signal } = new AbortController();
  const about = { stateDir: dir, runDir: dir, isManaged: false };
  const deps = guardDeps(about, fileSections(hostFiles(), dir), signal);
  process.exitCode = await (task === "restore" ? restore(deps, signal) : watch(deps, value("--id"), signal));
}

await main(process.argv.slice(2));
