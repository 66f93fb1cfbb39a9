import { formatBytes, formatDuration } from "../../lib/text/durations.ts";
import { plainLine } from "../../lib/text/terminal-text.ts";
import type { DataStoreTask } from "../../protocol/triggers/data-store.ts";

const WIDEST_BAR = 30;
const NARROWEST_BAR = 10;

/** Formats a task's progress on one line of at most `columns`, with a bar if there is room and the size is known. Pure. */
export function progressLine(task: DataStoreTask, columns: number): string {
  const { progress } = task;
  if (progress === undefined) return plainLine(task.details).slice(0, columns);
  const { bytes, total, rate, secondsLeft } = progress;
  const share = total === undefined || total <= 0 ? undefined : Math.min(1, bytes / total);
  const parts = [
    ...(share === undefined ? [] : [`${String(Math.floor(share * 100)).padStart(3)} %`]),
    total === undefined ? formatBytes(bytes) : `${formatBytes(bytes)} of ${formatBytes(total)}`,
    ...(rate === undefined ? [] : [`${formatBytes(rate)}/s`]),
    ...(secondsLeft === undefined ? [] : [`${formatDuration(secondsLeft * 1000)} left`]),
  ];
  const text = parts.join("  ");
  const room = Math.min(WIDEST_BAR, columns - text.length - 3);
  if (share === undefined || room < NARROWEST_BAR) return text.slice(0, columns);
  const full = Math.floor(share * room);
  return `[${"#".repeat(full)}${"-".repeat(room - full)}] ${text}`;
}
