import { spawn } from "node:child_process";
import { closeSync, constants, openSync } from "node:fs";
import { join } from "node:path";
import { HostError, toError } from "../errors.ts";
import { SEARCH_PATH, type Exec } from "./exec.ts";
import { signalGroup } from "./process-tree.ts";

/** A guard that waits for the end of a confirm window and outlives whoever started it. */
export interface DeadMan {
  /** Ends it, since there is nothing left to watch; one that has ended is fine. */
  end(): Promise<void>;
}

export interface DeadManRequest {
  /** The directories of the node, and whether systemd runs it. */
  readonly stateDir: string;
  readonly runDir: string;
  readonly isManaged: boolean;
  /** The pending change. */
  readonly id: string;
  readonly waitMs: number;
}

/** Starts the dead-man of a pending change. @throws {HostError} `guard-failed`. */
export type StartDeadMan = (request: DeadManRequest, signal: AbortSignal) => Promise<DeadMan>;

const SYSTEMD_MS = 10_000;

/**
 * The dead-man of this program: a timer of its own under systemd, which would otherwise end it along with the agent's unit; else a shell
 * that sleeps in a session of its own, since a runtime that only waits would hold 40 MB.
 */
export function hostDeadMan(exec: Pick<Exec, "run">): StartDeadMan {
  return async (request, signal) => (request.isManaged ? timer(exec, request, signal) : sleeper(request));
}

/** The command line that waits and then becomes `holdfast guard watch` of the same program. */
export function watchCommand(request: DeadManRequest): readonly [file: string, ...args: string[]] {
  const seconds = String(Math.ceil(Math.max(0, request.waitMs) / 1000));
  return ["/bin/sh", "-c", 'sleep "$1"; shift; exec "$@"', "holdfast-guard", seconds, ...guardCommand(request)];
}

/**
 * Becomes a shell that sleeps and then this program again, in the same process. Returns only where the runtime cannot.
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

function guardCommand({ stateDir, runDir, isManaged, id }: DeadManRequest): string[] {
  const [node = process.execPath, entry = ""] = process.argv;
  const where = ["--state", stateDir, "--run", runDir, ...(isManaged ? ["--managed"] : [])];
  return [node, ...process.execArgv, entry, "guard", "watch", ...where, "--id", id];
}

async function timer(exec: Pick<Exec, "run">, request: DeadManRequest, signal: AbortSignal): Promise<DeadMan> {
  const unit = `holdfast-guard-${request.id}`;
  const options = { signal, deadlineMs: SYSTEMD_MS, maxOutputBytes: 16_384 };
  const seconds = Math.ceil(Math.max(1000, request.waitMs) / 1000);
  const about = ["--quiet", "--collect", `--unit=${unit}`, `--on-active=${seconds}s`];
  const args = [...about, "--timer-property=AccuracySec=1s", "--", ...guardCommand(request)];
  const { exitCode, stderr } = await exec.run("systemd-run", args, options);
  if (exitCode !== 0) throw new HostError("guard-failed", `systemd-run: ${stderr.trim() || `exit status ${exitCode}`}`);
  return {
    async end() {
      const stopping = { ...options, signal: new AbortController().signal };
      // One that has fired is gone already; what is left ends by itself, since it finds nothing pending.
      await exec.run("systemctl", ["stop", "--no-block", "--", `${unit}.timer`], stopping).catch(() => undefined);
    },
  };
}

const BEGUN_ANEW = constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC | constants.O_APPEND;

function sleeper(request: DeadManRequest): DeadMan {
  let output: number | undefined;
  try {
    output = openSync(join(request.stateDir, "guard.log"), BEGUN_ANEW, 0o600);
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
        // While nobody has reaped it, its number is nobody else's.
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
