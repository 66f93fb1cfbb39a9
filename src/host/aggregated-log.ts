import type { Clock } from "./clock.ts";

/** Time after the first line of a kind during which further lines are only counted, in milliseconds. */
const WINDOW_MS = 60_000;
/** Maximum number of kinds counted at once; the lines of further kinds share one. */
const MAX_KINDS = 256;
const OTHER_KINDS = "other";

type Level = "warn" | "error";
type Log = Readonly<Record<Level, (fields: object, message: string) => void>>;

interface Counted {
  readonly level: Level;
  readonly message: string;
  readonly endsAt: number;
  repeated: number;
}

/**
 * Limits log lines that another program can cause. Logs the first line of a kind at once and counts further ones for 60 s; then
 * logs the count as `repeated`. Share one instance among all connections, because each may repeat the same mistake.
 */
export class AggregatedLog {
  readonly #log: Log;
  readonly #clock: Clock;
  /** Counters by kind, the oldest first. */
  readonly #kinds = new Map<string, Counted>();
  #isTiming = false;

  constructor(log: Log, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  /** Logs or counts one warning. `kind` identifies similar lines: a method or a code, never text from the peer. */
  warn(kind: string, fields: Readonly<Record<string, unknown>>, message: string): void {
    this.#limit("warn", kind, fields, message);
  }

  /** Logs or counts one failure of our own, which `kind` identifies as for a warning. */
  error(kind: string, fields: Readonly<Record<string, unknown>>, message: string): void {
    this.#limit("error", kind, fields, message);
  }

  #limit(level: Level, kind: string, fields: Readonly<Record<string, unknown>>, message: string): void {
    this.#endWindows();
    const key = this.#kinds.has(kind) || this.#kinds.size < MAX_KINDS ? kind : OTHER_KINDS;
    const counted = this.#kinds.get(key);
    if (counted !== undefined) {
      counted.repeated += 1;
      return;
    }
    this.#kinds.set(key, { level, message, endsAt: this.#clock.elapsed() + WINDOW_MS, repeated: 0 });
    this.#log[level](fields, message);
    this.#time();
  }

  #endWindows(): void {
    const now = this.#clock.elapsed();
    for (const [kind, { level, message, endsAt, repeated }] of this.#kinds) {
      if (endsAt > now) return;
      this.#kinds.delete(kind);
      if (repeated > 0) this.#log[level]({ kind, repeated, seconds: WINDOW_MS / 1000 }, message);
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
