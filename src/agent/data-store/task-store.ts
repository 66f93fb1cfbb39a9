import type { DatabaseSync, SQLOutputValue } from "node:sqlite";
import { unsynced } from "../../host/files/database.ts";
import { DataStoreRequest } from "../../protocol/triggers/data-store.ts";
import { Resume } from "../../protocol/triggers/transfer.ts";
import { isOver, TaskState, type Task, type Work } from "./tasks.ts";

/** Retention of ended tasks, and their maximum number. */
export const KEEP_MS = 6 * 3_600_000;
const MAX_OVER = 200;

/**
 * Durability of a task's record: across power cuts, across crashes of the program, or in memory only. A sync may take seconds while
 * transfers write.
 */
export type Keeping = "synced" | "written" | "remembered";

export interface TaskStoreOptions {
  /** Wall-clock milliseconds. */
  readonly now: () => number;
  /** Called if the database refuses a write; tasks continue in memory. */
  readonly onRefused: (error: unknown) => void;
}

/** The tasks of the data store. Memory is authoritative; the database is for the next agent. */
export class TaskStore {
  readonly #sql: DatabaseSync;
  readonly #options: TaskStoreOptions;
  readonly #tasks: Map<string, Task>;

  constructor(sql: DatabaseSync, options: TaskStoreOptions) {
    this.#sql = sql;
    this.#options = options;
    const rows = this.#try(() => sql.prepare("SELECT * FROM data_store_tasks ORDER BY started_ms, rowid").all()) ?? [];
    this.#tasks = new Map(rows.flatMap((row) => taskOf(row)).map((task) => [task.id, task]));
    const unread = rows.map(({ id }) => String(id)).filter((id) => !this.#tasks.has(id));
    for (const id of unread) this.#drop(id);
    this.prune();
  }

  /** Tasks in order of request. */
  all(): readonly Task[] {
    return [...this.#tasks.values()];
  }

  find(id: string): Task | undefined {
    return this.#tasks.get(id);
  }

  /** Stores a task. */
  put(task: Task, keeping: Keeping = "synced"): void {
    this.#tasks.set(task.id, task);
    if (keeping === "synced") this.#try(() => this.#write(task));
    else if (keeping === "written") this.#try(() => unsynced(this.#sql, () => this.#write(task)));
  }

  remove(id: string): void {
    if (this.#tasks.delete(id)) this.#drop(id);
  }

  /** Deletes old ended tasks; a clock jump counts as elapsed time. Returns the number of ended tasks left. */
  prune(): number {
    const now = this.#options.now();
    const over = this.all().filter(isOver);
    const old = over.filter(({ state }) => "endedAt" in state && Math.abs(now - state.endedAt) >= KEEP_MS);
    const rest = over.filter((task) => !old.includes(task));
    const gone = [...old, ...rest.slice(0, Math.max(0, rest.length - MAX_OVER))];
    for (const { id } of gone) this.remove(id);
    return over.length - gone.length;
  }

  #write({ id, name, path, peer, startedAt, work, state, resume }: Task): void {
    this.#sql
      .prepare(
        "INSERT OR REPLACE INTO data_store_tasks (id, name, path, peer, started_ms, is_over, state, work, resume) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
      )
      .run(
        id,
        name,
        path,
        peer ?? null,
        Math.round(startedAt),
        Number(isOver({ state })),
        JSON.stringify(state),
        work === undefined ? null : JSON.stringify(work),
        resume === undefined ? null : JSON.stringify(resume),
      );
  }

  #drop(id: string): void {
    this.#try(() => this.#sql.prepare("DELETE FROM data_store_tasks WHERE id=?").run(id));
  }

  #try<T>(work: () => T): T | undefined {
    try {
      return work();
    } catch (error) {
      this.#options.onRefused(error);
      return undefined;
    }
  }
}

/** Parses a row; undefined if another version wrote it differently. */
function taskOf(row: Record<string, SQLOutputValue>): readonly Task[] {
  const state = TaskState.safeParse(parsed(row["state"]));
  if (!state.success) return [];
  const work = DataStoreRequest.safeParse(parsed(row["work"]));
  const resume = Resume.safeParse(parsed(row["resume"]));
  const task: Task = {
    id: String(row["id"]),
    name: String(row["name"]),
    path: String(row["path"]),
    peer: typeof row["peer"] === "string" ? row["peer"] : undefined,
    startedAt: Number(row["started_ms"]),
    state: state.data,
    work: work.success && isWork(work.data) ? work.data : undefined,
    resume: resume.success ? resume.data : undefined,
  };
  return [task];
}

function isWork(request: DataStoreRequest): request is Work {
  return /^(?:HTTP|S3)_(?:DOWN|UP)LOAD$|^DELETE$/.test(request.action);
}

function parsed(value: SQLOutputValue | undefined): unknown {
  if (typeof value !== "string") return undefined;
  try {
    return JSON.parse(value) as unknown;
  } catch {
    return undefined;
  }
}
