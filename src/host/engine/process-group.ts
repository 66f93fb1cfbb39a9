import { readdirSync, readFileSync } from "node:fs";
import type { Clock } from "../clock.ts";

const ROUNDS = 40;
const PAUSE_MS = 50;

/**
 * Ends a command that the engine runs in a container, and what it started: everything of its session (setsid(2)) and below it that is
 * in a control group of that container. Where the engine counts processes otherwise than this machine does, nothing is ended.
 */
export async function endCommand(clock: Clock, pid: number, containerId: string): Promise<void> {
  const started = new Set<number>();
  for (let round = 0; round < ROUNDS; round += 1) {
    const living = commandProcesses(pid, containerId, started);
    if (living.length === 0) return;
    for (const one of living) {
      started.add(one);
      send(one);
    }
    await clock.sleep(PAUSE_MS);
  }
}

/** The living processes of a command, by its first one's number; those in `known` count although their parent may be gone. */
export function commandProcesses(leader: number, containerId: string, known: ReadonlySet<number>): readonly number[] {
  if (leader <= 1 || containerId.length < 12) return [];
  const all = processes();
  const found = new Set(
    all.filter(({ pid, session }) => pid === leader || session === leader || known.has(pid)).map(({ pid }) => pid),
  );
  for (let size = -1; size !== found.size;) {
    size = found.size;
    for (const { pid, parent } of all) if (found.has(parent)) found.add(pid);
  }
  return [...found].filter((pid) => isWithin(pid, containerId));
}

interface Process {
  readonly pid: number;
  readonly parent: number;
  readonly session: number;
}

function processes(): readonly Process[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .flatMap((name) => {
      const text = read(`/proc/${name}/stat`);
      // Fields 3, 4 and 6 of proc_pid_stat(5); the name before them may hold spaces and parentheses.
      const [state, parent, , session] = text.slice(text.lastIndexOf(")") + 2).split(" ");
      const isGone = state === undefined || state === "" || state === "Z" || state === "X";
      return isGone ? [] : [{ pid: Number(name), parent: Number(parent), session: Number(session) }];
    });
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
