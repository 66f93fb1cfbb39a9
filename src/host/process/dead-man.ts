import { spawn } from "node:child_process";
import { closeSync, constants, openSync } from "node:fs";
import { join } from "node:path";
import { HostError, toError } from "../../errors.ts";
import { UPGRADE_PATHS } from "../../protocol/documents/release.ts";
import { SEARCH_PATH, type Exec } from "./exec.ts";
import { signalGroup } from "./process-tree.ts";

/** A guard that waits for the end of a confirm window and outlives the process that started it. */
export interface DeadMan {
  /** Stops the guard, if it is still waiting. */
  end(): Promise<void>;
}

export interface DeadManRequest {
  /** The directories of the node, and whether systemd runs it. */
  readonly stateDir: string;
  readonly runDir: string;
  readonly isManaged: boolean;
  /** Id of the pending change. */
  readonly id: string;
  readonly waitMs: number;
  /** Path of a managed install's launcher; the package's by default. */
  readonly launch?: string;
}

/** Starts the dead-man guard of a pending change. @throws {HostError} `guard-failed`. */
export type StartDeadMan = (request: DeadManRequest, signal: AbortSignal) => Promise<DeadMan>;

const SYSTEMD_MS = 10_000;

/**
 * Returns this program's dead-man guard. Under systemd it is a timer unit, because systemd would otherwise stop it with the
 * agent's unit. Without systemd it is a sleeping shell in its own session, because a waiting runtime would hold 40 MB.
 */
export function hostDeadMan(exec: Pick<Exec, "run">): StartDeadMan {
  return async (request, signal) => (request.isManaged ? timer(exec, request, signal) : sleeper(request));
}

const SLEEP = 'sleep "$1"; shift';
/**
 * Shell script that runs the version that made the change. If that cannot run, fails or hangs for 900 s, the proven version
 * reverts what it can. Running both is harmless. `$1` is the launcher, `$2` the number of words of the first program before the
 * common arguments.
 */
const EITHER = `launch=$1 words=$2; shift 2; timeout -k 10 900 "$@" && exit; shift "$words"; exec "$launch" --proven "$@"`;
const LAUNCH = join(UPGRADE_PATHS.package, "launch");

/**
 * Returns the command line that waits and then runs `holdfast guard watch` of this program, or of the proven version if this one
 * cannot run.
 */
export function watchCommand(request: DeadManRequest): readonly [file: string, ...args: string[]] {
  const seconds = String(Math.ceil(Math.max(0, request.waitMs) / 1000));
  if (!request.isManaged) {
    return ["/bin/sh", "-c", `${SLEEP}; exec "$@"`, "holdfast-guard", seconds, ...ownProgram(), ...task(request)];
  }
  return ["/bin/sh", "-c", `${SLEEP}; ${EITHER}`, "holdfast-guard", seconds, ...either(request)];
}

/**
 * Replaces this process with a shell that sleeps and then runs this program again. Returns only if the runtime has no execve.
 * @throws {HostError} `guard-failed`.
 */
export function becomeSleeper(request: DeadManRequest): void {
  const [file, ...args] = watchCommand(request);
  if (process.execve === undefined) return;
  try {
    process.execve(file, [file, ...args], { PATH: SEARCH_PATH });
  } catch (error) {
    throw new HostError("guard-failed", `cannot wait for the deadline: ${toError(error).message}`, { cause: error });
  }
}

function ownProgram(): string[] {
  const [node = process.execPath, entry = ""] = process.argv;
  return [node, ...process.execArgv, entry];
}

function task({ stateDir, runDir, isManaged, id }: DeadManRequest): string[] {
  return ["guard", "watch", "--state", stateDir, "--run", runDir, ...(isManaged ? ["--managed"] : []), "--id", id];
}

/** Returns the arguments of `EITHER`. */
function either(request: DeadManRequest): string[] {
  const own = ownProgram();
  return [request.launch ?? LAUNCH, String(own.length), ...own, ...task(request)];
}

async function timer(exec: Pick<Exec, "run">, request: DeadManRequest, signal: AbortSignal): Promise<DeadMan> {
  const unit = `holdfast-guard-${request.id}`;
  const options = { signal, deadlineMs: SYSTEMD_MS, maxOutputBytes: 16_384 };
  const seconds = Math.ceil(Math.max(1000, request.waitMs) / 1000);
  const timerOptions = ["--quiet", "--collect", `--unit=${unit}`, `--on-active=${seconds}s`];
  // In a container, units with this property, such as the agent's, see another /proc and so another boot id.
  const property = "--property=ProtectControlGroups=yes";
  // systemd expands `$` in command lines.
  const command = ["/bin/sh", "-c", EITHER, "holdfast-guard", ...either(request)].map((word) =>
    word.replaceAll("$", "$$$$"),
  );
  const args = [...timerOptions, "--timer-property=AccuracySec=1s", property, "--", ...command];
  const { exitCode, stderr } = await exec.run("systemd-run", args, options);
  if (exitCode !== 0) throw new HostError("guard-failed", `systemd-run: ${stderr.trim() || `exit status ${exitCode}`}`);
  return {
    async end() {
      const stopping = { ...options, signal: new AbortController().signal };
      // A timer that fired is already gone. A running guard finds nothing pending and exits.
      await exec.run("systemctl", ["stop", "--no-block", "--", `${unit}.timer`], stopping).catch(() => undefined);
    },
  };
}

const TRUNCATED = constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC | constants.O_APPEND;

function sleeper(request: DeadManRequest): DeadMan {
  let output: number | undefined;
  try {
    output = openSync(join(request.stateDir, "guard.log"), TRUNCATED, 0o600);
    const [file, ...args] = watchCommand(request);
    const env = { PATH: SEARCH_PATH };
    const child = spawn(file, args, { detached: true, stdio: ["ignore", output, output], cwd: "/", env });
    let isOver = false;
    child.once("error", () => (isOver = true)).once("exit", () => (isOver = true));
    child.unref();
    const { pid } = child;
    if (pid === undefined) throw new HostError("guard-failed", `cannot start ${file}`);
    return {
      end() {
        // A pid is not reused before its process is reaped.
        if (!isOver) signalGroup(pid, "SIGTERM");
        return Promise.resolve();
      },
    };
  } catch (error) {
    if (error instanceof HostError) throw error;
    throw new HostError("guard-failed", `cannot start the guard: ${toError(error).message}`, { cause: error });
  } finally {
    if (output !== undefined) closeSync(output);
  }
}
