import type { Store, StorePart } from "../host/data-store/store.ts";
import type { Resume, TransferEvent, TransferJob } from "../protocol/triggers/transfer.ts";
import type { TransferDeps } from "./deps.ts";

type Known = Pick<TransferJob, "parts" | "resume">;

/** The end of a download that an earlier attempt gave its name and was killed before it told so; undefined when there is none. */
export async function publishedBefore({ parts, resume }: Known, store: Store): Promise<TransferEvent | undefined> {
  if (resume?.whole === undefined || !(await store.isPublished(parts.join("/"), resume.whole.mark))) return undefined;
  return doneWith(resume.bytes, resume.whole.hash);
}

/** Whether a part is what an earlier attempt has fetched and verified, untouched since. */
export async function isWhole(part: StorePart, resume: Resume | undefined): Promise<boolean> {
  return resume?.whole !== undefined && (await part.mark()) === resume.whole.mark;
}

/**
 * Says that a part is whole and waits until that is written down: whoever comes after a kill then knows the file by it, published or not,
 * and fetches nothing twice. Rejects with the signal's reason.
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
  await mayPublish({ ...found, whole: { mark, ...(hash === undefined ? {} : { hash }) } }, signal);
}

/** How a download ends. */
export function doneWith(bytes: number, hash: string | undefined): TransferEvent {
  return { is: "done", bytes, ...(hash === undefined ? {} : { hash }) };
}
