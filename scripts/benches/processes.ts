import { existsSync, lstatSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** Memory of a process in bytes, by /proc/<pid>/smaps_rollup. */
export function memoryOf(pid: number): { readonly residentBytes: number; readonly privateDirtyBytes: number } {
  const text = readFileSync(`/proc/${pid}/smaps_rollup`, "utf8");
  const of = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, "m").exec(text)?.[1]) * 1024;
  return { residentBytes: of("Rss"), privateDirtyBytes: of("Private_Dirty") };
}

/** Activity of a process since its start. */
export interface Activity {
  /** Voluntary context switches of all threads: each is a wait that ended. */
  readonly wakeUps: number;
  readonly cpuMs: number;
  readonly writtenBytes: number;
  readonly children: number;
  /** Page faults of children that have ended: above 0 once there was one. */
  readonly endedChildrenFaults: number;
}

/** Reads what a process has done, thread by thread. */
export function activityOf(pid: number): Activity {
  let wakeUps = 0;
  let cpuNs = 0;
  let children = 0;
  for (const thread of readdirSync(`/proc/${pid}/task`)) {
    const at = `/proc/${pid}/task/${thread}`;
    wakeUps += Number(/^voluntary_ctxt_switches:\s+(\d+)$/m.exec(readFileSync(`${at}/status`, "utf8"))?.[1]);
    cpuNs += Number(readFileSync(`${at}/schedstat`, "utf8").split(" ")[0]);
    children += readFileSync(`${at}/children`, "utf8").split(" ").filter(Boolean).length;
  }
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return {
    wakeUps,
    cpuMs: cpuNs / 1e6,
    writtenBytes: Number(/^write_bytes: (\d+)$/m.exec(readFileSync(`/proc/${pid}/io`, "utf8"))?.[1]),
    children,
    endedChildrenFaults: Number(fields[8]) + Number(fields[10]),
  };
}

const TICKS_A_SECOND = 100;

/** Seconds of processor time of a process with all its threads, those that ended too (proc_pid_stat(5)). */
export function cpuSecondsOf(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) / TICKS_A_SECOND;
}

/** Every file below a directory with its size and time of change, as one text that differs when one does. */
export function fingerprint(dir: string): string {
  if (!existsSync(dir)) return "";
  return readdirSync(dir, { recursive: true, encoding: "utf8" })
    .sort()
    .map((name) => {
      const { size, mtimeMs } = lstatSync(join(dir, name));
      return `${name} ${size} ${mtimeMs}`;
    })
    .join("\n");
}

/** The part of all cores that was busy between two readings of /proc/stat (proc_stat(5)). */
export function busyBetween(before: string, after: string): number {
  const [then, now] = [ticksOf(before), ticksOf(after)];
  return 1 - (now.idle - then.idle) / (now.total - then.total);
}

function ticksOf(text: string): { readonly total: number; readonly idle: number } {
  const ticks = (text.split("\n")[0] ?? "").split(/\s+/).slice(1, 9).map(Number);
  return { total: ticks.reduce((sum, value) => sum + value, 0), idle: (ticks[3] ?? 0) + (ticks[4] ?? 0) };
}
