import { z } from "zod";
import { SessionError } from "../../../errors.ts";
import { plainLine, safeJson } from "../../../lib/text/terminal-text.ts";
import { TaskStarted, type DataStoreTask } from "../../../protocol/triggers/data-store.ts";
import { isAbsent } from "../../frame/client.ts";
import { askDataStore } from "./calls.ts";
import { progressLine } from "../../text/data-store-progress.ts";
import { fetchTasks } from "./tasks.ts";
import type { ExitClass } from "../../frame/exit-codes.ts";
import type { Call } from "../../frame/verb.ts";

const LOOK_MS = 1000;
/** Interval of progress lines without a terminal. */
const LINE_MS = 5000;
/** Time limit of waiting for an agent that restarts; its tasks continue afterwards. */
const AWAY_MS = 60_000;
/** Time limit of a cancelled task's end. */
const CANCEL_MS = 10_000;
const CLEAR_LINE = "\r\u001b[K";
const Done = z.looseObject({});

/** Starts a transfer on the node and waits for its end, unless `--detach`. Ctrl-C cancels the task. */
export async function dataStoreTransfer(call: Call, request: object): Promise<ExitClass> {
  const { terminal, settings, values, signal } = call;
  signal.throwIfAborted();
  // Nobody would know the task of a request that was given up.
  const lasting: Call = { ...call, signal: new AbortController().signal };
  const { id } = await askDataStore(lasting, request, TaskStarted);
  if (values["detach"] === true) {
    terminal.out(settings.isJson ? `${safeJson({ id })}\n` : `${plainLine(id)}\n`);
    return "ok";
  }
  const shown = new Shown(call);
  const task = await untilEnded(lasting, id, shown, signal);
  if (task !== undefined) return conclude(call, shown, task);
  shown.say("cancelling: Ctrl-C again leaves it to the node");
  await askDataStore(lasting, { action: "CANCEL", id }, Done).catch((error: unknown) => {
    // It may have ended by itself just then.
    if (!(error instanceof SessionError) || error.code === "agent-unreachable") throw error;
  });
  const late = new AbortController();
  const stopClock = call.clock.after(CANCEL_MS, () => late.abort());
  const ended = await untilEnded(lasting, id, undefined, late.signal);
  stopClock();
  if (ended?.status === "Completed") return conclude(call, shown, ended);
  shown.end(ended);
  shown.say(ended === undefined ? `the task ${plainLine(id)} has not ended yet` : plainLine(ended.details));
  return "interrupted";
}

/** Polls a task until it has ended; returns undefined if `signal` is aborted first. */
async function untilEnded(
  call: Call,
  id: string,
  shown: Shown | undefined,
  signal: AbortSignal,
): Promise<DataStoreTask | undefined> {
  let awaySince: number | undefined;
  while (!signal.aborted) {
    const task = await readTask({ ...call, signal }, id).catch((error: unknown) => {
      if (signal.aborted) return undefined;
      awaySince ??= call.clock.elapsed();
      if (!isAbsent(error) || call.clock.elapsed() - awaySince > AWAY_MS) throw error;
      return undefined;
    });
    if (task !== undefined) {
      awaySince = undefined;
      if (task.status !== "Pending" && task.status !== "Running") return task;
      shown?.progress(task);
    }
    await call.clock.sleep(LOOK_MS, signal).catch(() => undefined);
  }
  return undefined;
}

async function readTask(call: Call, id: string): Promise<DataStoreTask> {
  const { tasks } = await fetchTasks(call);
  const task = tasks.find((one) => one.id === id);
  if (task === undefined) throw new SessionError("not-found", `the task ${id} is gone: somebody has cleared it`);
  return task;
}

function conclude({ terminal, settings }: Call, shown: Shown, task: DataStoreTask): ExitClass {
  shown.end(task);
  if (task.status !== "Completed") throw new SessionError("transfer-failed", task.details);
  if (!settings.isJson) terminal.out(`${plainLine(task.path ?? "done")}: ${plainLine(task.details)}\n`);
  return "ok";
}

/** Progress of a running task: one line rewritten on a terminal, else a line every few seconds. */
class Shown {
  readonly #call: Call;
  #isDrawn = false;
  #saidAt = -Infinity;
  #last = "";

  constructor(call: Call) {
    this.#call = call;
  }

  progress(task: DataStoreTask): void {
    const { terminal, settings, clock } = this.#call;
    if (terminal.isInteractive && !settings.isJson) {
      terminal.out(CLEAR_LINE + progressLine(task, terminal.size().columns - 1));
      this.#isDrawn = true;
      return;
    }
    const text = settings.isJson ? safeJson(task) : progressLine(task, Infinity);
    if (text === this.#last || clock.elapsed() - this.#saidAt < LINE_MS) return;
    this.#last = text;
    this.#saidAt = clock.elapsed();
    terminal.out(`${text}\n`);
  }

  /** Prints a remark on standard error, below the progress line. */
  say(text: string): void {
    this.#clear();
    this.#call.terminal.err(`${text}\n`);
  }

  /** Removes the progress line; with `--json`, prints the ended task. */
  end(task: DataStoreTask | undefined): void {
    this.#clear();
    if (this.#call.settings.isJson && task !== undefined) this.#call.terminal.out(`${safeJson(task)}\n`);
  }

  #clear(): void {
    if (this.#isDrawn) this.#call.terminal.out(CLEAR_LINE);
    this.#isDrawn = false;
  }
}
