/** The newest losses of a session: moments of the monotonic clock, oldest first, and the cause of the last one. */
export interface Losses {
  readonly times: readonly number[];
  readonly cause: string;
}

/** A session that is lost again and again: how often within ten minutes, since when, and why the last time. */
export interface RepeatedLoss {
  readonly count: number;
  /** Moment of the first loss that counts. */
  readonly since: number;
  readonly cause: string;
}

export const NO_LOSSES: Losses = { times: [], cause: "" };

const WINDOW_MS = 600_000;
/** Losses within the window that count as a problem. */
const REPEATED = 4;
/** One a second for the whole window; attempts come no faster. */
const MAX_TIMES = 600;
const MAX_CAUSE = 512;

/** Adds a loss and drops those that are older than ten minutes. Pure. */
export function withLoss({ times }: Losses, now: number, cause: string): Losses {
  const kept = [...times, now].filter((at) => now - at < WINDOW_MS);
  return { times: kept.slice(-MAX_TIMES), cause: cause.slice(0, MAX_CAUSE) };
}

/** Returns the losses of the last ten minutes if they are four or more. Pure. */
export function repeatedLoss({ times, cause }: Losses, now: number): RepeatedLoss | undefined {
  const counted = times.filter((at) => now - at < WINDOW_MS);
  const [since] = counted;
  return since === undefined || counted.length < REPEATED ? undefined : { count: counted.length, since, cause };
}

export function lossText({ count, cause }: Pick<RepeatedLoss, "count" | "cause">): string {
  return `lost ${count} times in the last ten minutes; the last cause: ${cause}`;
}
