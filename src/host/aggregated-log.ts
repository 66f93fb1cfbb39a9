import type { Clock } from "./clock.ts";

/** Time after the first line of a kind in which the others are only counted. */
const WINDOW_MS = 60_000;
/** Kinds counted at once; the lines of further kinds share one. */
const MAX_KINDS = 256;
const OTHER_KINDS = "other";

interface Warnings {
  warn(fields: object, message: string): void;
}

interface Counted {
  readonly message: string;
  readonly endsAt: number;
  repeated: number;
}

/**
 * Limits log lines that another program can cause: the first line of a kind is logged at once, further ones are counted for a minute,
 * and the count is logged when the minute ends, as `repeated`. Share one among all connections, since each may bring the same mistake.
 */
export class AggregatedLog {
  readonly #log: Warnings;
  readonly #clock: Clock;
  /** By kind, the oldest first. */
  readonly #kinds = new Map<string, Counted>();
  #isTiming = false;

  constructor(log: Warnings, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  /** Logs or counts one line. `kind` says which lines are alike: a method or a code, never text that the other side chose. */
  warn(kind: string, fields: Readonly<Record<string, unknown>>, message: string): void {
    this.#endWindows();
    const key = this.#kinds.has(kind) || this.#kinds.size < MAX_KINDS ? kind : OTHER_KINDS;
    const counted = this.#kinds.get(key);
    if (counted !== undefined) {
      counted.repeated += 1;
      return;
    }
    this.#kinds.set(key, { message, endsAt: this.#clock.elapsed() + WINDOW_MS, repeated: 0 });
    this.#log.warn(fields, message);
    this.#time();
  }

  #endWindows(): void {
    const now = this.#clock.elapsed();
    for (const [kind, { message, endsAt, repeated }] of this.#kinds) {
      if (endsAt > now) return;
      this.#kinds.delete(kind);
      if (repeated > 0) this.#log.warn({ kind, repeated, seconds: WINDOW_MS / 1000 }, message);
    }
  }

  #time(): void {
    const [oldest] = this.#kinds.values();
    if (this.#isTiming || oldest === undefined) return;
    this.#isTiming = true;
    this.#clock.after(Math.max(0, oldest.endsAt - this.#clock.elapsed()), () => {
      this.#isTiming = false;
      this.#endWindows();
      this.#time();
    });
  }
}
