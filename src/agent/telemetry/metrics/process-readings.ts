import { parseMemoryMaps } from "../../../host/proc.ts";
import type { Reader } from "../../../host/reader.ts";
import type { Status } from "../../../protocol/local/answers.ts";

/** Resources that this process uses. */
export function readProcess(reader: Reader): Status["process"] {
  const { user, system } = process.cpuUsage();
  const maps = parseMemoryMaps(reader.read("/proc/self/smaps_rollup") ?? "");
  return {
    rssBytes: process.memoryUsage.rss(),
    ...(maps === undefined ? {} : { privateDirtyBytes: maps.privateDirtyBytes }),
    cpuSeconds: (user + system) / 1e6,
    children: countChildren(reader),
  };
}

/** proc_pid_task_children(5): the children of every thread. */
function countChildren(reader: Reader): number {
  return (reader.list("/proc/self/task") ?? [])
    .flatMap((thread) => (reader.read(`/proc/self/task/${thread}/children`) ?? "").split(" "))
    .filter((pid) => pid.trim() !== "").length;
}
