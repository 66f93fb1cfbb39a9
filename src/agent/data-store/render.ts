import { sizeText } from "../../lib/text/size-text.ts";
import type { DataStoreTask } from "../../protocol/triggers/data-store.ts";
import type { Task, TaskState } from "./tasks.ts";
import { defined } from "../../lib/defined.ts";

/** Returns the displayed form of a task. Pure. */
export function renderTask({ id, name, path, peer, startedAt, state }: Task): DataStoreTask {
  const progress = progressOf(state);
  return {
    id,
    name,
    status: state.status,
    details: detailsOf(state),
    sTime: startedAt,
    ...("endedAt" in state ? { eTime: state.endedAt } : {}),
    ...defined({ progress }),
    path,
    ...defined({ peer }),
  };
}

/** Formats a task's progress or result: `45 % · 450.0 MB of 1.0 GB · 12.3 MB/s · 45 s left`. Pure. */
export function detailsOf(state: TaskState): string {
  switch (state.status) {
    case "Pending":
      if (state.deaths === 0) return "waiting for its turn";
      return `waiting to be tried again: its process ended ${state.deaths === 1 ? "once" : `${state.deaths} times`}`;
    case "Running":
      return runningText(state);
    case "Completed": {
      const what = state.entries === undefined ? sizeText(state.bytes ?? 0) : entriesText(state.entries);
      return state.hash === undefined ? what : `${what} · ${state.hash}`;
    }
    case "Failed":
      return withLeft(state.reason, state.left);
    case "Cancelled":
      return withLeft(state.bytes === undefined ? "cancelled" : `cancelled after ${sizeText(state.bytes)}`, state.left);
  }
}

/** Omits text that the transfer reported itself. */
function withLeft(text: string, uploadId: string | undefined): string {
  const left = `the unfinished upload ${uploadId ?? ""} is left`;
  return uploadId === undefined || text.includes(left) ? text : `${text}; ${left}`;
}

type Running = Extract<TaskState, { readonly status: "Running" }>;

function runningText(state: Running): string {
  const { bytes, total, rate, entries, trouble } = state;
  if (entries !== undefined) return entriesText(entries);
  if (bytes === undefined) return trouble === undefined ? "connecting" : `trying again: ${trouble}`;
  const left = secondsLeft(state);
  const parts = [
    ...(total === undefined || total <= 0 ? [] : [`${Math.min(100, Math.floor((100 * bytes) / total))} %`]),
    total === undefined ? sizeText(bytes) : `${sizeText(bytes)} of ${sizeText(total)}`,
    ...(trouble === undefined ? [] : [`trying again: ${trouble}`]),
    ...(rate === undefined ? [] : [`${sizeText(rate)}/s`]),
    ...(left === undefined ? [] : [`${durationText(left)} left`]),
  ];
  return parts.join(" · ");
}

function progressOf(state: TaskState): DataStoreTask["progress"] {
  if (!("bytes" in state) || state.bytes === undefined) return undefined;
  const { bytes, total } = state;
  const known = { bytes, ...defined({ total }) };
  if (state.status !== "Running") return known;
  const left = secondsLeft(state);
  return {
    ...known,
    ...(state.rate === undefined ? {} : { rate: Math.round(state.rate) }),
    ...defined({ secondsLeft: left }),
  };
}

/** Returns the remaining time; undefined while stalled or without a known size. */
function secondsLeft({ bytes, total, rate }: Running): number | undefined {
  if (bytes === undefined || total === undefined || rate === undefined || rate < 1) return undefined;
  return Math.max(0, Math.ceil((total - bytes) / rate));
}

function durationText(seconds: number): string {
  if (seconds < 100) return `${seconds} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 100) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.round(hours / 24)} days`;
}

function entriesText(entries: number): string {
  return entries === 1 ? "1 entry removed" : `${entries} entries removed`;
}
