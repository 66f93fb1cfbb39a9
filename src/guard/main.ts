import { parseArgs } from "node:util";
import { AgentError, InputError, toError } from "../errors.ts";
import { systemClock } from "../host/clock.ts";
import { becomeSleeper } from "../host/process/dead-man.ts";
import { hostFiles } from "../host/files/files.ts";
import { parseBootId } from "../host/proc.ts";
import { hostReader } from "../host/reader.ts";
import { restore, watch, type GuardDeps } from "./guard.ts";
import { listRestorables } from "./restorables.ts";

const DEFAULT_STATE_DIR = "/var/lib/holdfast";
const DEFAULT_RUN_DIR = "/run/holdfast";
const OPTIONS = {
  state: { type: "string" },
  run: { type: "string" },
  id: { type: "string" },
  managed: { type: "boolean" },
} as const;
const USAGE = "usage: holdfast guard restore|watch [--state DIR]";

/** Runs `holdfast guard`; resolves to the exit status. */
export async function run(argv: readonly string[]): Promise<number> {
  process.umask(0o077);
  const stopping = new AbortController();
  const stop = (): void => stopping.abort(new InputError("cancelled", "stopped by a signal"));
  process.once("SIGTERM", stop).once("SIGINT", stop);
  try {
    const { task, id, ...where } = readArguments(argv);
    const deps = guardDeps(where, listRestorables({ clock: systemClock(), ...where }), stopping.signal);
    return await (task === "restore" ? restore(deps, stopping.signal) : watch(deps, id, stopping.signal));
  } catch (thrown) {
    const error = toError(thrown);
    process.stderr.write(`holdfast guard: ${error.message}\n`);
    return error instanceof InputError && error.code === "usage" ? 2 : error instanceof AgentError ? 1 : 70;
  }
}

/** Returns the guard's dependencies on this machine. */
export function guardDeps(
  where: NodeDirectories,
  restorables: GuardDeps["restorables"],
  signal: AbortSignal,
): GuardDeps {
  const clock = systemClock();
  return {
    files: hostFiles(),
    clock,
    bootId: parseBootId(hostReader().read("/proc/sys/kernel/random/boot_id") ?? "") ?? "",
    stateDir: where.stateDir,
    restorables,
    async wait(ms, id) {
      becomeSleeper({ ...where, id, waitMs: ms });
      await clock.sleep(ms, signal);
    },
    print: (line) => void process.stdout.write(`${new Date(clock.now()).toISOString()} ${line}\n`),
  };
}

interface NodeDirectories {
  readonly stateDir: string;
  readonly runDir: string;
  /** True if a package installed this program under systemd. */
  readonly isManaged: boolean;
}

interface GuardArguments extends NodeDirectories {
  readonly task: "restore" | "watch";
  readonly id: string | undefined;
}

function readArguments(argv: readonly string[]): GuardArguments {
  try {
    const { values, positionals } = parseArgs({
      args: [...argv],
      options: OPTIONS,
      strict: true,
      allowPositionals: true,
    });
    const [task, ...rest] = positionals;
    if ((task !== "restore" && task !== "watch") || rest.length > 0) throw new InputError("usage", USAGE);
    const { state: stateDir = DEFAULT_STATE_DIR, run: runDir = DEFAULT_RUN_DIR, managed = false, id } = values;
    return { task, stateDir, runDir, isManaged: managed, id };
  } catch (error) {
    if (error instanceof InputError) throw error;
    throw new InputError("usage", toError(error).message, { cause: error });
  }
}
