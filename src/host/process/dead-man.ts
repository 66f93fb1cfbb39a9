import { spawn } from "node:child_process";
import { closeSync, constants, openSync } from "node:fs";
import { join } from "node:path";
import { HostError, toError } from "../../errors.ts";
import { UPGRADE_PATHS } from "../../protocol/documents/release.ts";
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
  /** Where the launcher of a managed install is; the package's, by itself. */
  readonly launch?: string;
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

const SLEEP = 'sleep "$1"; shift';
/**
 * Whoever made the change understands best what it left; where its program cannot run, fails or hangs, another one's takes back what it
 * can. Twice is as good as once. `$1` is the launcher, `$2` how many words the first program has before what both are told.
 */
const EITHER = `launch=$1 words=$2; shift 2; timeout -k 10 900 "$@" && exit; shift "$words"; exec "$launch" --proven "$@"`;
const LAUNCH = join(UPGRADE_PATHS.package, "launch");

/** The command line that waits and then runs `holdfast guard watch` of the same program, or of another where that cannot. */
export function watchCommand(request: DeadManRequest): readonly [file: string, ...args: string[]] {
  const seconds = String(Math.ceil(Math.max(0, request.waitMs) / 1000));
  if (!request.isManaged) {
    return ["/bin/sh", "-c", `${SLEEP}; exec "$@"`, "holdfast-guard", seconds, ...ownProgram(), ...task(request)];
  }
  return ["/bin/sh", "-c", `${SLEEP}; ${EITHER}`, "holdfast-guard", seconds, ...either(request)];
}

/**
 * Becomes a shell that sleeps and then runs this program again. Returns only where the runtime cannot.
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

/** What `EITHER` is given. */
function either(request: DeadManRequest): string[] {
  const own = ownProgram();
  return [request.launch ?? LAUNCH, String(own.length), ...own, ...task(request)];
}

async function timer(exec: Pick<Exec, "run">, request: DeadManRequest, signal: AbortSignal): Promise<DeadMan> {
  const unit = `holdfast-guard-${request.id}`;
  const options = { signal, deadlineMs: SYSTEMD_MS, maxOutputBytes: 16_384 };
  const seconds = Math.ceil(Math.max(1000, request.waitMs) / 1000);
  const about = ["--quiet", "--collect", `--unit=${unit}`, `--on-active=${seconds}s`];
  // Within a container /proc is another one for units that have this, as the agent's, and so is the boot they see.
  const sees = "--property=ProtectControlGroups=yes";
  // systemd puts variables of its own into a command line.
  const command = ["/bin/sh", "-c", EITHER, "holdfast-guard", ...either(request)].map((word) =>
    word.replaceAll("$", "$$$$"),
  );
  const args = [...about, "--timer-property=AccuracySec=1s", sees, "--", ...command];
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
