import type { Logger } from "pino";
import { InputError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { StartTransfer, TransferProcess } from "../../host/process/transfer-process.ts";
import type { TransferEvent, TransferJob } from "../../protocol/triggers/transfer.ts";
import type { Room } from "./room.ts";
import { dueOf, refusalOf, withoutSlot, withSlot, withStanding, type Schedule } from "./schedule.ts";
import type { Keeping, TaskStore } from "./task-store.ts";
import {
  isDownload,
  isOver,
  step,
  targetOf,
  tidied,
  type Task,
  type TaskEvent,
  type TransferRequest,
} from "./tasks.ts";

export interface TransfersOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly tasks: TaskStore;
  readonly start: StartTransfer;
  /** Maximum number of running transfers. */
  readonly maxTransfers: number;
  /** Builds the job at its start; rejects if the transfer is not allowed. */
  readonly jobOf: (task: Task, request: TransferRequest) => Promise<TransferJob>;
  /** Builds the job that aborts a transfer's upload on the server, if there is one. */
  readonly abortJobOf: (task: Task, request: TransferRequest) => TransferJob | undefined;
  /** Returns why a finished download may not be published, or undefined. */
  readonly refusalOf: (task: Task) => string | undefined;
  readonly room: Room;
  /** Removes the leftovers of a download that is not resumed. */
  readonly dropPart: (path: string, id: string) => Promise<void>;
  /** Called when a task ends. */
  readonly onOver: () => void;
}

/** Maximum number of waiting transfers. */
const MAX_WAITING = 32;
/** Minimum interval between saved positions of a transfer. */
const SAVE_MS = 2000;
/** Time limit of aborting an upload. */
const TIDY_MS = 20_000;

interface Active {
  /** The process; undefined until its job is built. */
  child: TransferProcess | undefined;
  isCancelled: boolean;
  /** True while the file is being published, which cannot be cancelled. */
  isPublishing: boolean;
  /** True once its size is known and was checked against the disk. */
  isJudged: boolean;
  /** Monotonic time of the last stored state. */
  savedAt: number;
  /** Resolves when its process has ended. */
  gone: Promise<void>;
}

/** Runs transfers in processes of their own, with bounded concurrency; restarts one whose process ends without a result. */
export class Transfers {
  readonly #options: TransfersOptions;
  readonly #active = new Map<string, Active>();
  readonly #timers = new Map<string, () => void>();
  /** Ended tasks with leftovers on a server. */
  readonly #untidy = new Map<string, Task>();
  /** Transfers that remove these leftovers. */
  readonly #tidying = new Map<string, { readonly child: TransferProcess; readonly done: Promise<void> }>();
  #schedule: Schedule = [];
  #isClosed = false;

  constructor(options: TransfersOptions) {
    this.#options = options;
  }

  /** Resumes the transfers of an earlier agent. */
  reopen(): void {
    const { tasks } = this.#options;
    for (const task of tasks.all().filter((one) => !isOver(one))) {
      const next = this.#apply(task.id, { is: "reopened" });
      if (next?.work === undefined || next.work.action === "DELETE") continue;
      this.#schedule = withSlot(this.#schedule, { id: next.id, target: targetOf(next.work), is: "queued" });
    }
    this.#startDue();
  }

  /** Checks that a transfer can be queued. @throws {InputError} `busy` if its target is in use or the queue is full */
  check(request: TransferRequest): void {
    const limits = { maxRunning: this.#options.maxTransfers, maxWaiting: MAX_WAITING };
    const refusal = refusalOf(this.#schedule, targetOf(request), limits);
    if (refusal === undefined) return;
    if ("full" in refusal) throw new InputError("busy", `${refusal.full} transfers are waiting already`);
    const where = isDownload(request) ? "file in the data store" : "destination";
    throw new InputError("busy", `task ${refusal.taken} is at work on the same ${where}`, {
      details: { task: refusal.taken },
    });
  }

  /** Queues a task that `check` allowed. */
  add(task: Task, request: TransferRequest): void {
    this.#options.tasks.put(task);
    this.#schedule = withSlot(this.#schedule, { id: task.id, target: targetOf(request), is: "queued" });
    this.#startDue();
  }

  /**
   * Cancels a task; resolves when its process has ended and its upload was aborted or given up.
   * @throws {InputError} `conflict` if it has completed.
   */
  async cancel(id: string): Promise<void> {
    const active = this.#active.get(id);
    if (active === undefined) {
      this.#timers.get(id)?.();
      this.#timers.delete(id);
      this.#end(id);
    } else {
      if (!active.isPublishing) {
        active.isCancelled = true;
        active.child?.cancel();
      }
      await active.gone;
      const task = this.#options.tasks.find(id);
      if (task?.state.status === "Completed") throw new InputError("conflict", `task ${id} was completed before`);
      if (task !== undefined && !isOver(task)) {
        if (this.#isClosed) throw new InputError("busy", "the agent ends");
        return this.cancel(id);
      }
    }
    await this.#tidying.get(id)?.done;
  }

  /** Stops all processes so that the next agent can resume. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const cancel of this.#timers.values()) cancel();
    for (const { child } of this.#active.values()) child?.leave();
    for (const { child } of this.#tidying.values()) child.leave();
    await Promise.all([...this.#active.values()].map(({ gone }) => gone));
    await Promise.all([...this.#tidying.values()].map(({ done }) => done));
  }

  #startDue(): void {
    if (this.#isClosed) return;
    for (const id of dueOf(this.#schedule, { maxRunning: this.#options.maxTransfers })) {
      this.#schedule = withStanding(this.#schedule, id, "running");
      const active: Active = {
        child: undefined,
        isCancelled: false,
        isPublishing: false,
        isJudged: false,
        savedAt: -Infinity,
        gone: Promise.resolve(),
      };
      this.#active.set(id, active);
      active.gone = this.#run(id, active).then(() => {
        this.#active.delete(id);
        this.#settle(id, active.isCancelled);
      });
    }
  }

  /** Runs one transfer. Never rejects. */
  async #run(id: string, active: Active): Promise<void> {
    const { start, jobOf, log } = this.#options;
    const task = this.#apply(id, { is: "started" });
    if (task?.work === undefined || task.work.action === "DELETE") return;
    try {
      const job = await jobOf(task, task.work);
      // A cancellation meanwhile had no process to notify.
      if (active.isCancelled || this.#isClosed) return;
      active.child = start(job, (event) => this.#heard(id, event));
    } catch (error) {
      const { message } = toError(error);
      this.#apply(id, { is: "failed", code: "refused", message });
      return;
    }
    const { pid } = active.child;
    log.info({ task: id, pid, kind: task.work.action }, "transfer started");
    const { how, said } = await active.child.ended;
    const now = this.#options.tasks.find(id);
    const isExpected = now === undefined || isOver(now) || active.isCancelled || this.#isClosed;
    log.info({ task: id, pid, status: now?.state.status, how }, "transfer ended");
    if (isExpected) return;
    log.warn({ task: id, pid, how, said }, "a transfer ended without a word");
    this.#apply(id, { is: "died", how });
  }

  #heard(id: string, event: TransferEvent): void {
    const active = this.#active.get(id);
    if (active === undefined) return;
    // A cancelled transfer has not failed, and one that ends with the agent is resumed by the next.
    if (event.is === "failed" && (active.isCancelled || this.#isClosed)) return;
    if (event.is === "whole") return this.#whole(id, event, active);
    if (event.is === "progress") this.#judgeRoom(id, event, active);
    this.#apply(id, event, event.is === "resumable" ? this.#keepingOf(active) : keepingOfEnd(event));
  }

  /** Stores the first resumable position durably, since it names leftovers on a server; a power cut may lose later ones. */
  #keepingOf(active: Active): Keeping {
    const now = this.#options.clock.elapsed();
    if (now - active.savedAt < SAVE_MS) return "remembered";
    const keeping = active.savedAt === -Infinity ? "synced" : "written";
    active.savedAt = now;
    return keeping;
  }

  /** Records a complete file before it is published, so that the next agent recognizes it after any interruption. */
  #whole(id: string, event: TransferEvent, active: Active): void {
    const task = this.#apply(id, event);
    if (task === undefined || active.isCancelled || this.#isClosed) return;
    const { room, refusalOf } = this.#options;
    const message = refusalOf(task) ?? room.heard(id, task.resume?.bytes ?? 0, task.resume?.bytes);
    if (message !== undefined) return this.#refuse(id, message, active);
    active.isPublishing = true;
    active.child?.publish();
  }

  /** Fails a download that exceeds the free disk space. The child process reports the size, which is not stored. */
  #judgeRoom(id: string, { bytes, total }: Extract<TransferEvent, { is: "progress" }>, active: Active): void {
    const { room, log } = this.#options;
    const message = room.heard(id, bytes, total);
    if (message !== undefined) return this.#refuse(id, message, active);
    if (total === undefined || active.isJudged) return;
    active.isJudged = true;
    room
      .judge(id)
      .then((message) => message === undefined || this.#refuse(id, message, active))
      .catch((error: unknown) => log.warn({ task: id, err: toError(error) }, "the room of the disk is not known"));
  }

  #refuse(id: string, message: string, active: Active): void {
    if (active.isCancelled || active.isPublishing || this.#isClosed) return;
    this.#apply(id, { is: "failed", code: "refused", message });
    active.child?.cancel();
  }

  /** Handles the end of a process: the task ends, waits for a retry, or is left to the next agent. */
  #settle(id: string, isCancelled: boolean): void {
    const { tasks, clock } = this.#options;
    const task = tasks.find(id);
    if (task === undefined || isOver(task) || isCancelled) return this.#end(id);
    // Stores the position for the next agent.
    if (this.#isClosed) return tasks.put(task);
    const waitMs = task.state.status === "Pending" ? (task.state.waitMs ?? 0) : 0;
    this.#schedule = withStanding(this.#schedule, id, "held");
    const again = (): void => {
      this.#timers.delete(id);
      this.#schedule = withStanding(this.#schedule, id, "queued");
      this.#startDue();
    };
    this.#timers.set(id, clock.after(waitMs, again));
    this.#startDue();
  }

  /** Ends a task, as cancelled unless it has a result. */
  #end(id: string): void {
    const { dropPart, room, log, onOver } = this.#options;
    const task = this.#apply(id, { is: "cancelled" });
    this.#schedule = withoutSlot(this.#schedule, id);
    room.end(id, task?.state.status === "Completed");
    if (task !== undefined && task.state.status !== "Completed") {
      dropPart(task.path, id).catch((error: unknown) => {
        log.warn({ task: id, err: toError(error) }, "what a transfer left was not removed");
      });
    }
    const before = this.#untidy.get(id);
    this.#untidy.delete(id);
    if (before !== undefined) this.#tidy(before);
    onOver();
    this.#startDue();
  }

  /** Aborts an upload that is not resumed; until then the task reports it as left. */
  #tidy(task: Task): void {
    const { start, abortJobOf, log, clock, tasks } = this.#options;
    const { id, work } = task;
    if (work === undefined || work.action === "DELETE") return;
    let isDone = false;
    try {
      const job = abortJobOf(task, work);
      if (job === undefined) return;
      const child = start(job, (event) => {
        isDone ||= event.is === "done";
        if (event.is === "failed") log.warn({ task: id, reason: event.message }, "an upload was not aborted");
      });
      if (this.#isClosed) child.leave();
      const stopClock = clock.after(TIDY_MS, () => child.leave());
      const done = child.ended.then(() => {
        stopClock();
        this.#tidying.delete(id);
        const now = tasks.find(id);
        if (isDone && now !== undefined) tasks.put(tidied(now));
      });
      this.#tidying.set(id, { child, done });
    } catch (error) {
      log.warn({ task: id, err: toError(error) }, "an upload was not aborted");
    }
  }

  #apply(id: string, event: TaskEvent, keeping: Keeping = "synced"): Task | undefined {
    const { tasks, clock } = this.#options;
    const task = tasks.find(id);
    if (task === undefined) return undefined;
    const next = step(task, event, clock.now());
    if (next !== task) tasks.put(next, keeping);
    if (!isOver(task) && "left" in next.state && next.state.left !== undefined) this.#untidy.set(id, task);
    return next;
  }
}

const keepingOfEnd = ({ is }: TransferEvent): Keeping => (is === "done" || is === "failed" ? "synced" : "remembered");
