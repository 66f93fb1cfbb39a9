import { readdirSync, readFileSync } from "node:fs";
import type { Clock } from "../clock.ts";

const ROUNDS = 40;
const PAUSE_MS = 50;

/** A command that the engine runs in a container. */
export interface RunningCommand {
  readonly pid: number;
  readonly containerId: string;
  /** An environment variable, `NAME=value`, that only this command and its descendants have. */
  readonly mark: string;
}

/**
 * Kills a command and its descendants, even in another session (setsid(2)): all processes in its session or with its mark that
 * are in a control group of the container. Kills nothing if the engine's pids are not this machine's.
 */
export async function endCommand(clock: Clock, command: RunningCommand): Promise<void> {
  for (let round = 0; round < ROUNDS; round += 1) {
    const living = processesOf(command);
    if (living.length === 0) return;
    for (const pid of living) send(pid);
    await clock.sleep(PAUSE_MS);
  }
}

/** Returns the living processes of a command. */
function processesOf({ pid, containerId, mark }: RunningCommand): readonly number[] {
  if (pid <= 1 || !/^[0-9a-f]{64}$/.test(containerId)) return [];
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((one) => isWithin(one, containerId) && isLivingPart(one, pid, mark));
}

function isLivingPart(pid: number, leader: number, mark: string): boolean {
  const text = read(`/proc/${pid}/stat`);
  // Fields 3 and 6 of proc_pid_stat(5); the name before them may contain spaces and parentheses.
  const [state = "", , , session] = text.slice(text.lastIndexOf(")") + 2).split(" ");
  if (state === "" || state === "Z" || state === "X") return false;
  return pid === leader || session === String(leader) || read(`/proc/${pid}/environ`).split("\0").includes(mark);
}

/**
 * Reports whether a process is in a control group of the container. The group's name contains the container's id with any cgroup
 * driver.
 */
function isWithin(pid: number, containerId: string): boolean {
  return read(`/proc/${pid}/cgroup`).includes(containerId);
}

function send(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // The process exited between the check and the call.
  }
}

function read(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
