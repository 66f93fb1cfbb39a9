import { InputError, SessionError, toError } from "../errors.ts";
import { linesOf } from "../lib/text/lines.ts";
import { untilAborted } from "../lib/async/until-aborted.ts";
import { TransferJob, TransferOrder, type Resume, type TransferEvent } from "../protocol/triggers/transfer.ts";

const MAX_LINE_BYTES = 1024 * 1024;

/** The pipes of a transfer process: events go out, the job and orders come in. */
export interface Channel {
  /** The first line of the input. @throws {InputError} `bad-job`, {SessionError} `left` */
  readonly job: Promise<TransferJob>;
  /** Aborted by an order to cancel and by the end of the input, with a {SessionError} `cancelled` or `left`. */
  readonly signal: AbortSignal;
  readonly emit: (event: TransferEvent) => void;
  /** Reports a complete part file and waits for the order to publish it. Rejects with the signal's reason. */
  readonly mayPublish: (resume: Resume, signal: AbortSignal) => Promise<void>;
}

export interface ChannelEnds {
  readonly input: AsyncIterable<Uint8Array>;
  readonly print: (line: string) => void;
}

/** Opens the channel and reads its input to the end. */
export function openChannel({ input, print }: ChannelEnds): Channel {
  const stopping = new AbortController();
  let [resolve, reject]: [(job: TransferJob) => void, (error: Error) => void] = [() => undefined, () => undefined];
  const job = new Promise<TransferJob>((whenRead, whenNot) => ([resolve, reject] = [whenRead, whenNot]));
  let permit = (): void => undefined;
  const permission = new Promise<void>((resolve) => (permit = resolve));
  const emit = (event: TransferEvent): void => print(JSON.stringify(event));
  // A caller that never asks for the job must not get an unhandled rejection.
  job.catch(() => undefined);

  const read = async (): Promise<void> => {
    let isFirst = true;
    for await (const line of linesOf(input, MAX_LINE_BYTES)) {
      const order = isFirst ? undefined : orderIn(line);
      if (isFirst) resolve(parsedJob(line));
      else if (order === "cancel") stopping.abort(new SessionError("cancelled", "the transfer was cancelled"));
      else if (order === "publish") permit();
      isFirst = false;
    }
    throw new SessionError("left", "the requester of the transfer is gone");
  };
  read().catch((error: unknown) => {
    reject(toError(error));
    stopping.abort(error);
  });
  return {
    job,
    signal: stopping.signal,
    emit,
    mayPublish(resume, signal) {
      emit({ is: "whole", resume });
      return untilAborted(permission, signal);
    },
  };
}

function parsedJob(line: Uint8Array): TransferJob {
  const job = TransferJob.safeParse(jsonOf(line));
  if (job.success) return job.data;
  const [issue] = job.error.issues;
  throw new InputError("bad-job", `the job's ${issue?.path.join(".") ?? ""}: ${issue?.message ?? "cannot be read"}`);
}

const orderIn = (line: Uint8Array): TransferOrder["is"] | undefined => TransferOrder.safeParse(jsonOf(line)).data?.is;

function jsonOf(line: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(line).toString("utf8"));
  } catch {
    return undefined;
  }
}
