import { parseArgs } from "node:util";
import { AgentError, InputError, toError } from "../errors.ts";
import { systemClock } from "../host/clock.ts";
import { becomeSleeper } from "../host/dead-man.ts";
import { hostFiles } from "../host/files.ts";
import { parseBootId } from "../host/proc.ts";
import { hostReader } from "../host/reader.ts";
import { restore, watch, type GuardDeps } from "./guard.ts";
import { listRestorables } from "./restorables.ts";

const DEFAULT_STATE_DIR = "/var/lib/holdfast";
const DEFAULT_RUN_DIR = "/run/holdfast";
const OPTIONS = { state: { type: "string" }, id: { type: "string" }, run: { type: "string" } } as const;
const USAGE = "usage: holdfast guard restore|watch [--state DIR] [--run DIR]";

/** Runs `holdfast guard`; resolves to the exit status. */
export async function run(argv: readonly string[]): Promise<number> {
  process.umask(0o077);
  const ending = new AbortController();
  const stop = (): void => ending.abort(new InputError("cancelled", "told to stop"));
  process.once("SIGTERM", stop).once("SIGINT", stop);
  try {
    const { task, stateDir, runDir, id } = readArguments(argv);
    // Only a managed install keeps its run directory where systemd makes it.
    const isManaged = runDir === DEFAULT_RUN_DIR && hostReader().list("/run/systemd/system") !== undefined;
    const restorables = listRestorables({ clock: systemClock(), stateDir, runDir, isManaged });
    const deps = guardDeps({ stateDir, runDir }, restorables, ending.signal);
    return await (task === "restore" ? restore(deps, ending.signal) : watch(deps, id, ending.signal));
  } catch (thrown) {
    const error = toError(thrown);
    process.stderr.write(`holdfast guard: ${error.message}\n`);
    return error instanceof InputError && error.code === "usage" ? 2 : error instanceof AgentError ? 1 : 70;
  }
}

/** What the guard works with on this machine. */
export function guardDeps(
  { stateDir, runDir }: Pick<GuardArguments, "stateDir" | "runDir">,
  restorables: GuardDeps["restorables"],
  signal: AbortSignal,
): GuardDeps {
  const clock = systemClock();
  return {
    files: hostFiles(),
    clock,
    bootId: parseBootId(hostReader().read("/proc/sys/kernel/random/boot_id") ?? "") ?? "",
    stateDir,
    restorables,
    async wait(ms, id) {
      becomeSleeper({ stateDir, runDir, id, waitMs: ms });
      await clock.sleep(ms, signal);
    },
    print: (line) => void process.stdout.write(`${new Date(clock.now()).toISOString()} ${line}\n`),
  };
}

interface GuardArguments {
  readonly task: "restore" | "watch";
  readonly stateDir: string;
  readonly runDir: string;
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
    return { task, stateDir: values.state ?? DEFAULT_STATE_DIR, runDir: values.run ?? DEFAULT_RUN_DIR, id: values.id };
  } catch (error) {
    if (error instanceof InputError) throw error;
    throw new InputError("usage", toError(error).message, { cause: error });
  }
}
