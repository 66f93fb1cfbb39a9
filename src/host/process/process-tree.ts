import { readdirSync, readFileSync } from "node:fs";
import { z } from "zod";

/** A process named so that a later one with the same number is not taken for it. */
export interface ProcessId {
  readonly pid: number;
  /** Field 22 of proc_pid_stat(5), in clock ticks since boot. */
  readonly startTicks: string;
}

/** A process as it is named on disk; it says nothing after a reboot. */
export const ProcessName = z.object({ pid: z.int().min(1), startTicks: z.string().max(32) });

/** This process. */
export function ownProcess(): ProcessId {
  return { pid: process.pid, startTicks: readStat(process.pid)?.startTicks ?? "" };
}

/** Whether the very process still lives, be it stopped or hung; one that only waits to be reaped does not. */
export function isLiving({ pid, startTicks }: ProcessId): boolean {
  const stat = readStat(pid);
  return stat !== undefined && stat.startTicks === startTicks && stat.state !== "Z" && stat.state !== "X";
}

interface Stat extends ProcessId {
  readonly parent: number;
  readonly state: string;
}

/** Every living process below `root`, whatever session or group it moved to; empty where /proc cannot be read. */
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

/** The process that a copy of its proc_pid_stat(5) names, while it lives; one that nobody has waited for is gone as well. */
export function findProcess(stat: string): ProcessId | undefined {
  const { pid, startTicks } = parseStat(stat);
  const found = Number.isInteger(pid) ? readStat(pid) : undefined;
  return found?.startTicks === startTicks && isLiving(found) ? { pid, startTicks } : undefined;
}

/** Sends a signal to a whole process group (kill(2)); one that is gone is fine. */
export function signalGroup(leader: number, signal: NodeJS.Signals): void {
  send(-leader, signal);
}

/** Sends a signal to one process, unless its number has passed to another since. */
export function signalProcess(process: ProcessId, signal: NodeJS.Signals): void {
  if (readStat(process.pid)?.startTicks === process.startTicks) send(process.pid, signal);
}

function send(target: number, signal: NodeJS.Signals): void {
  try {
    process.kill(target, signal);
  } catch {
    // It ended between the decision and the call, which is what was wanted.
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

/** A text of proc_pid_stat(5). */
function parseStat(text: string): Stat {
  // The command in parentheses may itself hold spaces and parentheses; the fields after the last one are plain.
  const [state = "", parent, ...rest] = text.slice(text.lastIndexOf(")") + 2).split(" ");
  return {
    pid: Number.parseInt(text, 10),
    parent: Number(parent),
    state,
    startTicks: rest[17] ?? "",
  };
}
