import { readdirSync, readFileSync } from "node:fs";
import { z } from "zod";

/** Identifies a process, even if its pid is reused later. */
export interface ProcessId {
  readonly pid: number;
  /** Field 22 of proc_pid_stat(5), in clock ticks since boot. */
  readonly startTicks: string;
}

/** A process id as stored on disk; invalid after a reboot. */
export const ProcessName = z.object({ pid: z.int().min(1), startTicks: z.string().max(32) });

export function ownProcess(): ProcessId {
  return { pid: process.pid, startTicks: readStat(process.pid)?.startTicks ?? "" };
}

/** Reports whether this exact process is alive, including stopped or hung; a zombie is not. */
export function isLiving({ pid, startTicks }: ProcessId): boolean {
  const stat = readStat(pid);
  return stat !== undefined && stat.startTicks === startTicks && stat.state !== "Z" && stat.state !== "X";
}

interface Stat extends ProcessId {
  readonly parent: number;
  readonly state: string;
}

/** Returns every living process below `root`, in any session or group; empty if /proc cannot be read. */
export function descendantsOf(root: number): readonly ProcessId[] {
  const children = new Map<number, Stat[]>();
  for (const stat of listProcesses()) {
    const siblings = children.get(stat.parent);
    if (siblings === undefined) children.set(stat.parent, [stat]);
    else siblings.push(stat);
  }
  const found = new Map<number, Stat>();
  const pending = [root];
  for (let pid = pending.pop(); pid !== undefined; pid = pending.pop()) {
    for (const child of children.get(pid) ?? []) {
      if (!found.has(child.pid)) pending.push(child.pid);
      found.set(child.pid, child);
    }
  }
  return [...found.values()];
}

/** Returns the process of a copied proc_pid_stat(5) line, if it is alive; a zombie is not. */
export function findProcess(stat: string): ProcessId | undefined {
  const { pid, startTicks } = parseStat(stat);
  const found = Number.isInteger(pid) ? readStat(pid) : undefined;
  return found?.startTicks === startTicks && isLiving(found) ? { pid, startTicks } : undefined;
}

/** Sends a signal to a process group (kill(2)), if it exists. */
export function signalGroup(leader: number, signal: NodeJS.Signals): void {
  send(-leader, signal);
}

/** Sends a signal to one process, unless its pid was reused. */
export function signalProcess(process: ProcessId, signal: NodeJS.Signals): void {
  if (readStat(process.pid)?.startTicks === process.startTicks) send(process.pid, signal);
}

function send(target: number, signal: NodeJS.Signals): void {
  try {
    process.kill(target, signal);
  } catch {
    // The process exited between the check and the call.
  }
}

function listProcesses(): readonly Stat[] {
  let names: readonly string[];
  try {
    names = readdirSync("/proc");
  } catch {
    return [];
  }
  return names
    .filter((name) => /^\d+$/.test(name))
    .map((name) => readStat(Number(name)))
    .filter((stat) => stat !== undefined);
}

function readStat(pid: number): Stat | undefined {
  let text: string;
  try {
    text = readFileSync(`/proc/${pid}/stat`, "utf8");
  } catch {
    return undefined;
  }
  return parseStat(text);
}

/** Parses a text of proc_pid_stat(5). */
function parseStat(text: string): Stat {
  // The command in parentheses may hold spaces and parentheses; the fields after the last one are plain.
  const [state = "", parent, ...rest] = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return {
    pid: Number.parseInt(text, 10),
    parent: Number(parent),
    state,
    startTicks: rest[17] ?? "",
  };
}
