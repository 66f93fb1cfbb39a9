import { InputError, SessionError, toError } from "../errors.ts";
import { linesOf } from "../lib/lines.ts";
import { TransferJob, TransferOrder, type TransferEvent } from "../protocol/transfer.ts";

const MAX_LINE_BYTES = 1024 * 1024;

/** The two ends that a transfer talks through: events go out, the job and orders come in. */
export interface Channel {
  /** The first line of the input. @throws {InputError} `bad-job`, {SessionError} `left` */
  readonly job: Promise<TransferJob>;
  /** Aborted by an order to cancel and by the end of the input, with a {SessionError} `cancelled` or `left`. */
  readonly signal: AbortSignal;
  readonly emit: (event: TransferEvent) => void;
}

export interface ChannelEnds {
  readonly input: AsyncIterable<Uint8Array>;
  readonly print: (line: string) => void;
}

/** Opens the channel and reads its input until that ends. */
export function openChannel({ input, print }: ChannelEnds): Channel {
  const stopping = new AbortController();
  let [resolve, reject]: [(job: TransferJob) => void, (error: Error) => void] = [() => undefined, () => undefined];
  const job = new Promise<TransferJob>((whenRead, whenNot) => ([resolve, reject] = [whenRead, whenNot]));
  // Whoever does not get as far as asking for the job need not hear that there is none.
  job.catch(() => undefined);

  const read = async (): Promise<void> => {
    let isFirst = true;
    for await (const line of linesOf(input, MAX_LINE_BYTES)) {
      if (isFirst) resolve(parsedJob(line));
      else if (isCancel(line)) stopping.abort(new SessionError("cancelled", "the transfer was cancelled"));
      isFirst = false;
    }
    throw new SessionError("left", "whoever asked for the transfer is gone");
  };
  read().catch((error: unknown) => {
    reject(toError(error));
    stopping.abort(error);
  });
  return { job, signal: stopping.signal, emit: (event) => print(JSON.stringify(event)) };
}

function parsedJob(line: Uint8Array): TransferJob {
  const job = TransferJob.safeParse(jsonOf(line));
  if (job.success) return job.data;
  const [issue] = job.error.issues;
  throw new InputError("bad-job", `the job's ${issue?.path.join(".") ?? ""}: ${issue?.message ?? "cannot be read"}`);
}

const isCancel = (line: Uint8Array): boolean => TransferOrder.safeParse(jsonOf(line)).success;

function jsonOf(line: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(line).toString("utf8"));
  } catch {
    return undefined;
  }
}
