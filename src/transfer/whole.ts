import type { Store, StorePart } from "../host/data-store/store.ts";
import type { Resume, TransferEvent, TransferJob } from "../protocol/triggers/transfer.ts";
import type { TransferDeps } from "./deps.ts";
import { defined } from "../lib/defined.ts";

type Known = Pick<TransferJob, "parts" | "resume">;

/** Returns the result of a download that was published before its process was killed, if there is one. */
export async function publishedBefore({ parts, resume }: Known, store: Store): Promise<TransferEvent | undefined> {
  if (resume?.whole === undefined || !(await store.isPublished(parts.join("/"), resume.whole.mark))) return undefined;
  return doneWith(resume.bytes, resume.whole.hash);
}

/** Reports whether a part is a complete, verified and unchanged download of an earlier attempt. */
export async function isWhole(part: StorePart, resume: Resume | undefined): Promise<boolean> {
  return resume?.whole !== undefined && (await part.mark()) === resume.whole.mark;
}

/**
 * Reports a complete part and waits until that is recorded. After a kill, the record identifies the file, published or not, so nothing
 * is fetched twice. Rejects with the signal's reason.
 */
export async function announceWhole(
  part: StorePart,
  found: Omit<Resume, "whole">,
  hash: string | undefined,
  { mayPublish }: Pick<TransferDeps, "mayPublish">,
  signal: AbortSignal,
): Promise<void> {
  const mark = await part.mark();
  signal.throwIfAborted();
  await mayPublish({ ...found, whole: { mark, ...defined({ hash }) } }, signal);
}

/** Returns the final event of a download. */
export function doneWith(bytes: number, hash: string | undefined): TransferEvent {
  return { is: "done", bytes, ...defined({ hash }) };
}
