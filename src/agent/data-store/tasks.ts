import { backoff } from "../../lib/async/backoff.ts";
import { z } from "zod";
import { shownUrl, type DataStoreRequest } from "../../protocol/triggers/data-store.ts";
import type { Resume, TransferEvent } from "../../protocol/triggers/transfer.ts";

type Transferring = "HTTP_DOWNLOAD" | "HTTP_UPLOAD" | "S3_DOWNLOAD" | "S3_UPLOAD";
/** A request that a child program carries out. */
export type TransferRequest = Extract<DataStoreRequest, { readonly action: Transferring }>;
/** Kinds of tasks. */
export type Work = TransferRequest | Extract<DataStoreRequest, { readonly action: "DELETE" }>;

const Moved = { bytes: z.number().optional(), total: z.number().optional() } as const;

/** Id of a multipart upload that is still on the server, as far as is known. */
const Left = { left: z.string().optional() } as const;

/** State of a task. Progress counts bytes of a transfer and entries of a deletion. Times in Unix milliseconds. */
export const TaskState = z.discriminatedUnion("status", [
  /** `waitMs`: how long it waits after the end of a child that said nothing. */
  z.object({ status: z.literal("Pending"), deaths: z.number(), waitMs: z.number().optional() }),
  z.object({
    status: z.literal("Running"),
    deaths: z.number(),
    ...Moved,
    rate: z.number().optional(),
    entries: z.number().optional(),
    /** Reason why the last attempt failed; removed once bytes are transferred again. */
    trouble: z.string().optional(),
  }),
  z.object({
    status: z.literal("Completed"),
    endedAt: z.number(),
    ...Moved,
    entries: z.number().optional(),
    hash: z.string().optional(),
  }),
  z.object({ status: z.literal("Failed"), endedAt: z.number(), ...Moved, ...Left, reason: z.string() }),
  z.object({ status: z.literal("Cancelled"), endedAt: z.number(), ...Moved, ...Left }),
]);
export type TaskState = z.infer<typeof TaskState>;

export interface Task {
  readonly id: string;
  /** Kind of work, for display. */
  readonly name: string;
  readonly path: string;
  readonly peer: string | undefined;
  /** Unix milliseconds. */
  readonly startedAt: number;
  /** The request; undefined once the task has ended, since an address may be a credential. */
  readonly work: Work | undefined;
  readonly state: TaskState;
  readonly resume: Resume | undefined;
}

/** Events of a task. */
export type TaskEvent =
  | TransferEvent
  | { readonly is: "started" }
  | { readonly is: "removed"; readonly entries: number }
  | { readonly is: "cancelled" }
  /** Its process ended without a result. */
  | { readonly is: "died"; readonly how: string }
  /** The agent ended during the task. */
  | { readonly is: "reopened" };

const MAX_DEATHS = 3;
const RESTART = { firstMs: 1000, maxMs: 16_000, factor: 4 };
const NAMES: Readonly<Record<Work["action"], string>> = {
  HTTP_DOWNLOAD: "Transfer HTTP File",
  HTTP_UPLOAD: "Upload HTTP File",
  S3_DOWNLOAD: "Transfer S3 File",
  S3_UPLOAD: "Upload S3 File",
  DELETE: "Delete",
};

/** Returns the path of a task in the data store, without a leading slash. Pure. */
export function pathOf(work: Work): string {
  const path = ((): string => {
    switch (work.action) {
      case "HTTP_DOWNLOAD":
        return `${work.location}/${work.filename}`;
      case "S3_DOWNLOAD":
        return work.location;
      case "DELETE":
        return work.filename;
      default:
        return work.filePath;
    }
  })();
  const names = path.split("/").filter((name) => name !== "" && name !== ".");
  return names.join("/");
}

/** Reports whether a task writes a file of the data store. Pure. */
export function isDownload(work: Work): boolean {
  return work.action === "HTTP_DOWNLOAD" || work.action === "S3_DOWNLOAD";
}

/** Returns the exclusive targets of a transfer: the local file, or the remote object. Pure. */
export function targetOf(work: Work): string {
  switch (work.action) {
    case "HTTP_UPLOAD":
      return work.uri;
    case "S3_UPLOAD":
      return work.bucketDest;
    default:
      return `file:${pathOf(work)}`;
  }
}

/** Returns a new task. Pure. */
export function newTask(id: string, work: Work, now: number): Task {
  return {
    id,
    name: NAMES[work.action],
    path: pathOf(work),
    peer: peerOf(work),
    startedAt: now,
    work,
    state: { status: "Pending", deaths: 0 },
    resume: undefined,
  };
}

function peerOf(work: Work): string | undefined {
  switch (work.action) {
    case "DELETE":
      return undefined;
    case "S3_DOWNLOAD":
      return work.uri;
    case "S3_UPLOAD":
      return work.bucketDest;
    default:
      return shownUrl(work.uri);
  }
}

export function isOver({ state }: Pick<Task, "state">): boolean {
  return state.status !== "Pending" && state.status !== "Running";
}

/** Returns an ended task after its upload was removed. Pure. */
export function tidied(task: Task): Task {
  const { state } = task;
  if (state.status !== "Failed" && state.status !== "Cancelled") return task;
  const { left: _, ...rest } = state;
  return { ...task, state: rest };
}

/** Returns the task after an event; events after its end change nothing. Pure. */
export function step(task: Task, event: TaskEvent, now: number): Task {
  const { state } = task;
  if (state.status !== "Pending" && state.status !== "Running") return task;
  const { bytes, total } = state.status === "Running" ? state : {};
  const moved = { bytes, total, left: task.resume?.uploadId };
  const running = state.status === "Running" ? state : { status: "Running" as const, deaths: state.deaths };
  const over = (ended: TaskState): Task => ({ ...task, state: ended, work: undefined, resume: undefined });
  switch (event.is) {
    case "started":
      return { ...task, state: { ...running, bytes: task.resume?.bytes, total: task.resume?.total } };
    case "progress": {
      const { trouble: _, ...rest } = running;
      return { ...task, state: { ...rest, bytes: event.bytes, total: event.total ?? total, rate: event.rate } };
    }
    case "removed":
      return { ...task, state: { ...running, entries: event.entries } };
    case "resumable":
    case "whole":
      return { ...task, resume: event.resume };
    case "retry":
      return { ...task, state: { ...running, rate: undefined, trouble: event.reason } };
    case "done": {
      const entries = state.status === "Running" ? state.entries : undefined;
      return over({ status: "Completed", endedAt: now, bytes: event.bytes, total, entries, hash: event.hash });
    }
    case "failed":
      return over({ status: "Failed", endedAt: now, ...moved, reason: event.message });
    case "cancelled":
      return over({ status: "Cancelled", endedAt: now, ...moved });
    case "died":
      return afterDeath(task, event.how, state.deaths + 1, (reason) =>
        over({ status: "Failed", endedAt: now, ...moved, reason }),
      );
    case "reopened": {
      if (state.status === "Pending") return { ...task, state: { status: "Pending", deaths: state.deaths } };
      const lost = lostOf(task.work);
      if (lost !== undefined) {
        return over({ status: "Failed", endedAt: now, ...moved, reason: `interrupted: the agent ended, and ${lost}` });
      }
      return { ...task, state: { status: "Pending", deaths: state.deaths } };
    }
  }
}

function afterDeath(task: Task, how: string, deaths: number, failed: (reason: string) => Task): Task {
  const lost = lostOf(task.work);
  if (lost !== undefined) return failed(`interrupted: the transfer's process ended (${how}), and ${lost}`);
  if (deaths > MAX_DEATHS) return failed(`the transfer's process ended ${deaths} times, at last with ${how}`);
  return { ...task, state: { status: "Pending", deaths, waitMs: backoff(deaths, RESTART) } };
}

/** Returns why an interrupted task cannot be resumed, or undefined. */
function lostOf(work: Work | undefined): string | undefined {
  switch (work?.action) {
    case undefined:
      return "what was asked for is not known any more";
    case "HTTP_UPLOAD":
      return "an upload by HTTP cannot be resumed";
    case "DELETE":
      return "what is left can be deleted again";
    default:
      return undefined;
  }
}
