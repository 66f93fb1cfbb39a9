import { readdirSync, readFileSync } from "node:fs";
import type { Clock } from "../clock.ts";

const ROUNDS = 40;
const PAUSE_MS = 50;

/** A command that the engine runs in a container. */
export interface RunningCommand {
  readonly pid: number;
  readonly containerId: string;
  /** A variable, `NAME=value`, that it and whatever it starts has in its environment, and nobody else. */
  readonly mark: string;
}

/**
 * Ends a command and what it started, be it in a session of its own (setsid(2)): whatever is of its session or has its mark, and is in a
 * control group of that container. Where the engine counts processes otherwise than this machine does, nothing is ended.
 */
export async function endCommand(clock: Clock, command: RunningCommand): Promise<void> {
  for (let round = 0; round < ROUNDS; round += 1) {
    const living = processesOf(command);
    if (living.length === 0) return;
    for (const pid of living) send(pid);
    await clock.sleep(PAUSE_MS);
  }
}

/** The living processes of a command. */
export function processesOf({ pid, containerId, mark }: RunningCommand): readonly number[] {
  if (pid <= 1 || !/^[0-9a-f]{64}$/.test(containerId)) return [];
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((one) => isWithin(one, containerId) && isLivingPart(one, pid, mark));
}

function isLivingPart(pid: number, leader: number, mark: string): boolean {
  const text = read(`/proc/${pid}/stat`);
  // Fields 3 and 6 of proc_pid_stat(5); the name before them may hold spaces and parentheses.
  const [state = "", , , session] = text.slice(text.lastIndexOf(")") + 2).split(" ");
  if (state === "" || state === "Z" || state === "X") return false;
  return pid === leader || session === String(leader) || read(`/proc/${pid}/environ`).split("\0").includes(mark);
}

/** A control group of a container has the container's id in its name, whatever driver made it. */
function isWithin(pid: number, containerId: string): boolean {
  return read(`/proc/${pid}/cgroup`).includes(containerId);
}

function send(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch {
    // It ended between the look and the call, which is what was wanted.
  }
}

function read(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
