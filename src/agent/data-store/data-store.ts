import { randomUUID } from "node:crypto";
import type { Logger } from "pino";
import { HostError, InputError, toError } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import type { ReadImageInfo } from "../../host/data-store/image-info.ts";
import { parseNewPath, parsePath } from "../../host/data-store/parse-path.ts";
import type { Store } from "../../host/data-store/store.ts";
import type { StartTransfer } from "../../host/process/transfer-process.ts";
import type {
  DataStoreEntry,
  DataStoreListing,
  DataStoreRequest,
  ImageInfo,
  TaskStarted,
} from "../../protocol/triggers/data-store.ts";
import { REPLY_LIMITS } from "../../protocol/channel/reply-parts.ts";
import type { TransferJob } from "../../protocol/triggers/transfer.ts";
import { pathField, storeRefusal } from "./failures.ts";
import { abortJobFor, jobFor, type JobSettings } from "./jobs.ts";
import { renderTask } from "./render.ts";
import { Room } from "./room.ts";
import { KEEP_MS, type TaskStore } from "./task-store.ts";
import { isDownload, isOver, newTask, pathOf, step, type Task, type TaskEvent, type TransferRequest } from "./tasks.ts";
import { textFile, type TextFile } from "./text-file.ts";
import { Transfers } from "./transfers.ts";

export interface DataStoreOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly store: Store;
  readonly tasks: TaskStore;
  readonly start: StartTransfer;
  readonly imageInfo: ReadImageInfo;
  readonly settings: JobSettings;
  /** Returns why these names may not be replaced, or undefined. */
  readonly isInUse: (parts: readonly string[]) => string | undefined;
  /** Called when the unfinished files of an earlier agent are removed. */
  readonly onSwept?: () => void;
}

const LIST_CAPS = { maxEntries: 10_000, maxDepth: 16 };
/** Maximum size of an answer that is assembled from parts, in bytes. */
const MAX_LIST_BYTES = REPLY_LIMITS.maxBytes - 65_536;
/** Time after which a request becomes a task, in milliseconds. */
const SHORT_MS = 2000;

interface Deletion {
  readonly parts: readonly string[];
  readonly control: AbortController;
  readonly done: Promise<void>;
}

/** The data store of a node: its requests and their tasks. */
export class DataStore {
  readonly #options: DataStoreOptions;
  readonly #transfers: Transfers;
  readonly #room: Room;
  readonly #deletions = new Map<string, Deletion>();
  /** Tasks whose parts survive a sweep of leftovers; new tasks start during the walk. */
  #unswept: Set<string> | undefined;
  readonly #ending = new AbortController();
  #cancelPruning = (): void => undefined;

  constructor(options: DataStoreOptions) {
    this.#options = options;
    const { clock, log, tasks, start, store, settings } = options;
    const { maxBytes, reserveRatio } = settings;
    this.#room = new Room({ clock, store, maxBytes, reserveRatio, signal: this.#ending.signal });
    this.#transfers = new Transfers({
      room: this.#room,
      clock,
      log,
      tasks,
      start,
      maxTransfers: settings.maxTransfers,
      jobOf: (task, request) => this.#jobOf(task, request),
      abortJobOf: (task, request) => abortJobFor(task, request, { root: store.root, settings }),
      refusalOf: ({ path }) => {
        const reason = options.isInUse(parseNewPath(path));
        return reason === undefined ? undefined : inUseText(path, reason);
      },
      dropPart: (path, id) => store.dropPart(path, id),
      onOver: () => this.#pruneLater(),
    });
  }

  /** Resumes the tasks of an earlier agent. */
  reopen(): void {
    const { tasks, clock, store, log } = this.#options;
    for (const task of tasks.all()) {
      if (task.work?.action === "DELETE") tasks.put(step(task, { is: "reopened" }, clock.now()));
    }
    this.#transfers.reopen();
    this.#pruneLater();
    const staying = new Set(tasks.all().flatMap((task) => (isOver(task) ? [] : [task.id])));
    this.#unswept = staying;
    store
      .sweepParts(staying, this.#ending.signal)
      .then(() => this.#options.onSwept?.())
      .catch((error: unknown) => log.debug({ err: toError(error) }, "leftover parts were not swept"))
      .finally(() => (this.#unswept = undefined));
  }

  /**
   * Answers one request.
   * @throws {InputError} `invalid-body`, `not-found`, `conflict`, `forbidden`, `busy`; {HostError} `disk-full`, `storage-unavailable`.
   */
  async handle(request: DataStoreRequest, signal: AbortSignal): Promise<unknown> {
    try {
      return await this.#handle(request, signal);
    } catch (error) {
      signal.throwIfAborted();
      throw storeRefusal(toError(error), pathField(request));
    }
  }

  /**
   * Starts a file from memory. It is published under its name once complete and replaces an existing file. Its size is limited by the
   * current free space above the reserve and the quota.
   * @throws as `handle`
   */
  async create(path: string, signal: AbortSignal): Promise<TextFile> {
    try {
      const { parts, quotaBytes = Infinity, roomBytes } = await this.#judgeNew(path, "file", signal);
      const id = randomUUID();
      this.#unswept?.add(id);
      return textFile(this.#options.store.openPart(parts.join("/"), id, 0), Math.min(quotaBytes, roomBytes));
    } catch (error) {
      signal.throwIfAborted();
      throw storeRefusal(toError(error), "file");
    }
  }

  /** Stops; the next agent resumes running tasks. */
  async close(): Promise<void> {
    this.#cancelPruning();
    this.#ending.abort(new InputError("cancelled", "the agent ends"));
    for (const { control } of this.#deletions.values())
      control.abort(
        new HostError("interrupted", "interrupted: the agent ended, and what is left can be deleted again"),
      );
    await this.#transfers.close();
    await Promise.all([...this.#deletions.values()].map(({ done }) => done));
    this.#options.store.close();
  }

  #handle(request: DataStoreRequest, signal: AbortSignal): Promise<unknown> | object {
    const { store, tasks } = this.#options;
    switch (request.action) {
      case "LIST":
        return this.#list(request.filename, signal);
      case "MKDIR":
        return store.mkdir(request.filename).then(() => ({}));
      case "DELETE":
        return this.#delete(request, signal);
      case "TASKS":
        tasks.prune();
        return { tasks: tasks.all().map(renderTask) };
      case "CANCEL":
        return this.#cancel(request.id);
      case "CLEAR":
        return this.#clear(request.id);
      case "IMAGE_INFO":
        return this.#imageInfo(request.filename, signal);
      default:
        return this.#transfer(request, signal);
    }
  }

  /** Truncates a list to the size of one answer. */
  async #list(path: string | undefined, signal: AbortSignal): Promise<DataStoreListing> {
    const { maxDepth } = LIST_CAPS;
    let { maxEntries } = LIST_CAPS;
    for (;;) {
      const listing = await this.#options.store.list(path, { maxEntries, maxDepth }, signal);
      const bytes = Buffer.byteLength(JSON.stringify(listing));
      if (bytes <= MAX_LIST_BYTES || maxEntries <= 1) return listing;
      // Entries differ in length, so the list is shortened until it fits.
      const fitting = Math.floor((entriesIn(listing.files) * MAX_LIST_BYTES * 0.95) / bytes);
      maxEntries = Math.max(1, Math.min(fitting, maxEntries - 1));
    }
  }

  async #imageInfo(path: string, signal: AbortSignal): Promise<ImageInfo> {
    const file = this.#options.store.open(path);
    try {
      return await this.#options.imageInfo(file.fd, signal);
    } finally {
      file.close();
    }
  }

  async #delete(work: Extract<DataStoreRequest, { readonly action: "DELETE" }>, signal: AbortSignal): Promise<object> {
    const { store, tasks, clock } = this.#options;
    const parts = parsePath(work.filename);
    const busy = tasks.all().find((task) => !isOver(task) && isBelow(task.path.split("/"), parts));
    if (busy !== undefined) {
      throw new InputError("busy", `task ${busy.id} (${busy.name}) is at work on ${busy.path}`, {
        details: { task: busy.id },
      });
    }
    signal.throwIfAborted();
    let task = step(newTask(randomUUID(), work, clock.now()), { is: "started" }, clock.now());
    let isShown = false;
    const put = (event: TaskEvent): void => {
      task = step(task, event, clock.now());
      if (isShown) tasks.put(task, event.is === "removed" ? "remembered" : "synced");
    };
    const control = new AbortController();
    // A caller that gives up cancels the request until it has become a task.
    const abort = (): void => control.abort(signal.reason);
    signal.addEventListener("abort", abort, { once: true });
    const cancelShowing = clock.after(SHORT_MS, () => {
      isShown = true;
      signal.removeEventListener("abort", abort);
      tasks.put(task);
    });
    const work$ = store.remove(work.filename, control.signal, (entries) => put({ is: "removed", entries }));
    const ended = work$.then(
      () => put({ is: "done", bytes: 0 }),
      (error: unknown) => {
        const { message } = toError(error);
        const isCancelled = control.signal.aborted && !this.#ending.signal.aborted;
        put(isCancelled ? { is: "cancelled" } : { is: "failed", code: "refused", message });
        throw storeRefusal(toError(error), pathField(work));
      },
    );
    const done = ended
      .catch(() => undefined)
      .then(() => {
        cancelShowing();
        signal.removeEventListener("abort", abort);
        this.#deletions.delete(task.id);
        this.#room.forget();
        if (isShown) this.#pruneLater();
      });
    this.#deletions.set(task.id, { parts, control, done });
    const gaveUp = new Promise<never>((_, reject) => {
      signal.addEventListener("abort", () => reject(toError(signal.reason)), { once: true });
    });
    await Promise.race([ended, gaveUp]);
    await done;
    return {};
  }

  async #cancel(id: string): Promise<object> {
    const task = this.#known(id);
    if (isOver(task)) throw new InputError("conflict", `task ${id} is over: ${task.state.status}`);
    const deletion = this.#deletions.get(id);
    if (deletion === undefined) await this.#transfers.cancel(id);
    else {
      deletion.control.abort(new InputError("cancelled", "it was cancelled"));
      await deletion.done;
    }
    return {};
  }

  #clear(id: string): object {
    const task = this.#known(id);
    if (!isOver(task)) throw new InputError("conflict", `task ${id} is not over: cancel it first`);
    this.#options.tasks.remove(id);
    return {};
  }

  #known(id: string): Task {
    this.#options.tasks.prune();
    const task = this.#options.tasks.find(id);
    if (task === undefined) throw new InputError("not-found", `there is no task ${id}`);
    return task;
  }

  async #transfer(request: TransferRequest, signal: AbortSignal): Promise<TaskStarted> {
    this.#check(request);
    await this.#judge(request, signal);
    // A request for the same target may have arrived meanwhile.
    this.#check(request);
    const task = newTask(randomUUID(), request, this.#options.clock.now());
    this.#unswept?.add(task.id);
    this.#transfers.add(task, request);
    return { id: task.id };
  }

  /** @throws {InputError} `busy` when another is at work on the same, or too many wait. */
  #check(request: TransferRequest): void {
    const names = pathOf(request).split("/");
    const gone = [...this.#deletions.values()].find(({ parts }) => isBelow(names, parts));
    if (gone !== undefined) throw new InputError("busy", `${gone.parts.join("/")} is being deleted`);
    this.#transfers.check(request);
  }

  /** Rejects requests that would fail later. Returns the file's names and the bytes left of the quota. */
  async #judge(
    request: TransferRequest,
    signal: AbortSignal,
    id?: string,
  ): Promise<{ readonly parts: readonly string[]; readonly quotaBytes: number | undefined }> {
    const path = pathOf(request);
    if (isDownload(request)) {
      return this.#judgeNew(path, request.action === "HTTP_DOWNLOAD" ? "filename" : "location", signal, id);
    }
    const file = this.#options.store.open(path);
    file.close();
    return { parts: file.parts, quotaBytes: undefined };
  }

  /** Checks a new file likewise. Also returns the bytes that the disk has for it. */
  async #judgeNew(
    path: string,
    field: string,
    signal: AbortSignal,
    id?: string,
  ): Promise<{
    readonly parts: readonly string[];
    readonly quotaBytes: number | undefined;
    readonly roomBytes: number;
  }> {
    const { store, isInUse, settings } = this.#options;
    const parts = parseNewPath(path);
    if (parts.length === 0) throw new InputError("invalid-body", `${field}: names no file`, { details: { field } });
    const reason = isInUse(parts);
    if (reason !== undefined) throw new InputError("conflict", inUseText(path, reason));
    requireNoDirectory(store, path);
    const quotaBytes = await this.#room.left(signal, id);
    const { freeBytes, totalBytes } = await store.space();
    return { parts, quotaBytes, roomBytes: Math.floor(freeBytes - totalBytes * settings.reserveRatio) };
  }

  async #jobOf(task: Task, request: TransferRequest): Promise<TransferJob> {
    const { store, settings } = this.#options;
    // A complete file needs no more space; only its process knows whether it was published.
    const isWhole = task.resume?.whole !== undefined;
    const { parts, quotaBytes } = isWhole
      ? { parts: parseNewPath(task.path), quotaBytes: undefined }
      : await this.#judge(request, this.#ending.signal, task.id);
    if (isDownload(request)) this.#room.begin(task.id, task.resume?.bytes ?? 0);
    return jobFor(task, request, { root: store.root, parts, quotaBytes, settings });
  }

  #pruneLater(): void {
    const { tasks, clock } = this.#options;
    this.#cancelPruning();
    if (tasks.prune() === 0) return;
    this.#cancelPruning = clock.after(KEEP_MS / 12, () => this.#pruneLater());
  }
}

const inUseText = (path: string, reason: string): string => `${path} is in use: ${reason}`;

function entriesIn(files: readonly DataStoreEntry[]): number {
  return files.reduce((sum, { files: inside = [] }) => sum + 1 + entriesIn(inside), 0);
}

/** Reports whether a path equals or lies below another. */
function isBelow(path: readonly string[], directory: readonly string[]): boolean {
  return directory.every((name, at) => path[at] === name);
}

/** Rejects a target that exists and is no file. */
function requireNoDirectory(store: Store, path: string): void {
  try {
    store.open(path).close();
  } catch (error) {
    const code = error instanceof InputError ? error.code : undefined;
    if (code === "not-found") return;
    if (code === "not-a-file") throw new InputError("conflict", `${path} is there already and is no file`);
    throw error;
  }
}
