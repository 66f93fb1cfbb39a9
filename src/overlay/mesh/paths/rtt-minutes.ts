import type { RttBucket } from "../../../protocol/overlay/mesh.ts";
import type { PathId } from "./peer-dialer.ts";

const MINUTE_MS = 60_000;
/** Time after which an unanswered probe counts as lost. */
const GRACE_MS = 5000;

interface Minute {
  sent: number;
  answered: number;
  min: number;
  max: number;
  mean: number;
  /** Sum of squared deviations from the mean (Welford). */
  squares: number;
}

/** Round trips of one path per minute of the wall clock; a probe belongs to the minute in which it was sent. */
export class RttMinutes {
  readonly #pathId: PathId;
  readonly #minutes = new Map<number, Minute>();

  constructor(pathId: PathId) {
    this.#pathId = pathId;
  }

  sent(at: number): void {
    const minute = this.#minutes.get(startOf(at));
    if (minute !== undefined) minute.sent += 1;
    else this.#minutes.set(startOf(at), { sent: 1, answered: 0, min: Infinity, max: 0, mean: 0, squares: 0 });
  }

  answered(sentAt: number, rttMs: number): void {
    const minute = this.#minutes.get(startOf(sentAt));
    if (minute === undefined) return;
    minute.answered += 1;
    minute.min = Math.min(minute.min, rttMs);
    minute.max = Math.max(minute.max, rttMs);
    const distance = rttMs - minute.mean;
    minute.mean += distance / minute.answered;
    minute.squares += distance * (rttMs - minute.mean);
  }

  /** Removes and returns the completed minutes, or all of them; skips minutes without an answer. */
  close(now: number, all = false): readonly RttBucket[] {
    const over = [...this.#minutes].filter(([time]) => all || isOver(time, now));
    for (const [time] of over) this.#minutes.delete(time);
    return over
      .filter(([, { answered }]) => answered > 0)
      .map(([time, minute]) => bucketOf(this.#pathId, time, minute));
  }
}

function startOf(at: number): number {
  return at - (at % MINUTE_MS);
}

/** A minute in the future, after the clock was set back, counts as completed. */
function isOver(time: number, now: number): boolean {
  return now >= time + MINUTE_MS + GRACE_MS || now < time - MINUTE_MS;
}

function bucketOf({ gateway, path }: PathId, time: number, minute: Minute): RttBucket {
  const { sent, answered, min, max, mean, squares } = minute;
  const stdRtt = Math.sqrt(Math.max(0, squares / answered));
  return { gateway, path, time, numRtt: sent, answered, minRtt: min, maxRtt: max, meanRtt: mean, stdRtt };
}
