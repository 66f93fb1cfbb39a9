import { z } from "zod";
import { InputError, SessionError } from "../../../errors.ts";
import { formatMoment } from "../../../lib/text/durations.ts";
import { plainValue, safeJson } from "../../../lib/text/terminal-text.ts";
import { DataStoreTasks, type DataStoreTask } from "../../../protocol/triggers/data-store.ts";
import { askDataStore } from "./calls.ts";
import type { ExitClass } from "../../frame/exit-codes.ts";
import { tableText } from "../../text/table.ts";
import type { Call } from "../../frame/verb.ts";
import { watch } from "../../frame/watch.ts";
import type { Paint } from "../../frame/terminal.ts";

/** Characters shown of an id, which are unique within a node. */
const SHORT_ID = 8;
const Done = z.looseObject({});
const STYLES = { Pending: "dim", Running: "bold", Completed: "green", Failed: "red", Cancelled: "yellow" } as const;

/** Lists the tasks, or cancels or clears one of them. */
export async function dataStoreTasks(call: Call, action: string, id: string | undefined): Promise<ExitClass> {
  const { values, terminal, settings } = call;
  if (action === "") {
    if (values["watch"] === true) return watch(call, async () => show(call, await fetchTasks(call)));
    terminal.out(show(call, await fetchTasks(call)));
    return "ok";
  }
  if (action !== "cancel" && action !== "clear") {
    throw new InputError("usage", `data-store tasks takes cancel or clear, not '${action}'`);
  }
  if (values["watch"] !== undefined) throw new InputError("usage", `data-store tasks ${action} does not take --watch`);
  if (id === undefined) throw new InputError("usage", `data-store tasks ${action} needs the ID of a task`);
  const task = named((await fetchTasks(call)).tasks, id);
  await askDataStore(call, { action: action === "cancel" ? "CANCEL" : "CLEAR", id: task.id }, Done);
  const done = `${task.id}: ${action === "cancel" ? "is being cancelled" : "cleared"}`;
  terminal.out(settings.isJson ? `${safeJson({})}\n` : `${done}\n`);
  return "ok";
}

/** Lists running and ended tasks of the data store. @throws {SessionError} as `askDataStore`. */
export function fetchTasks(call: Call): Promise<DataStoreTasks> {
  return askDataStore(call, { action: "TASKS" }, DataStoreTasks);
}

/** Returns the task whose id starts with `id`. @throws {InputError} `usage` for several; {SessionError} `not-found` for none. */
function named(tasks: readonly DataStoreTask[], id: string): DataStoreTask {
  const found = tasks.filter((task) => id !== "" && task.id.toLowerCase().startsWith(id.toLowerCase()));
  const [task] = found;
  if (task === undefined) throw new SessionError("not-found", `there is no task ${id}`);
  if (found.length > 1) throw new InputError("usage", `${found.length} tasks begin with ${id}: give more of the ID`);
  return task;
}

function show({ settings, terminal, clock }: Call, report: DataStoreTasks): string {
  if (settings.isJson) return `${safeJson(report)}\n`;
  const { columns } = terminal.size();
  return tasksText(plainValue(report), clock.now(), (style, text) => terminal.style(style, text), columns);
}

/** Formats a line for each task, cut to `columns` if possible. `now` is in Unix milliseconds. Pure. */
export function tasksText({ tasks }: DataStoreTasks, now: number, paint: Paint, columns: number): string {
  if (tasks.length === 0) return "no task\n";
  const rows = tasks.map(({ id, name, status, path = "", peer = "", sTime, eTime, details }) => [
    id.slice(0, SHORT_ID),
    name,
    paint(STYLES[status], status),
    path,
    peer,
    formatMoment(sTime, now),
    eTime === undefined ? "" : formatMoment(eTime, now),
    details,
  ]);
  return tableText(["ID", "TASK", "STATUS", "FILE", "OTHER END", "STARTED", "ENDED", "DETAILS"], rows, paint, columns);
}
