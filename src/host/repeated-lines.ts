const WINDOW_MS = 60_000;
/** Lines of one kind in a minute; more for debug lines, whose reader wants each step. */
const MAX_LINES = { debug: 1000, other: 100 } as const;
/** Kinds counted at once; the lines of further kinds count as one. */
const MAX_KINDS = 512;
const FURTHER = "further lines";

interface Counted {
  readonly endsAt: number;
  /** The first dropped line, whose level, component and message the summary has. */
  leftOut: string | undefined;
  passed: number;
  repeated: number;
}

/** Lines that may be written. */
export interface PassedLines {
  readonly lines: readonly string[];
  /** Time of the next summary, in monotonic milliseconds; undefined while nothing is dropped. */
  readonly dueAt: number | undefined;
}

/**
 * Limits log lines that repeat, by kind: level, component and message. Lines of a kind above the limit of a minute are counted, and one
 * line reports their number when the minute ends. Pure decisions: the caller gives the time in monotonic milliseconds.
 */
export class RepeatedLines {
  readonly #kinds = new Map<string, Counted>();

  /** The lines to write, if any, for a line of JSON as pino writes it: summaries that are due, and the line itself. */
  take(text: string, now: number): PassedLines {
    const summaries = this.#ended(now);
    const kind = kindOf(text);
    const key = this.#kinds.has(kind) || this.#kinds.size < MAX_KINDS ? kind : FURTHER;
    const counted = this.#kinds.get(key) ?? { endsAt: now + WINDOW_MS, leftOut: undefined, passed: 0, repeated: 0 };
    this.#kinds.set(key, counted);
    const most = text.startsWith('{"level":"debug"') && key !== FURTHER ? MAX_LINES.debug : MAX_LINES.other;
    if (counted.passed < most) {
      counted.passed += 1;
      return { lines: [...summaries, text], dueAt: this.#dueAt() };
    }
    counted.leftOut ??= text;
    counted.repeated += 1;
    return { lines: summaries, dueAt: this.#dueAt() };
  }

  /** The summaries that are due. */
  look(now: number): PassedLines {
    return { lines: this.#ended(now), dueAt: this.#dueAt() };
  }

  #ended(now: number): readonly string[] {
    const summaries: string[] = [];
    // They end in the order in which they began.
    for (const [key, { endsAt, leftOut, repeated }] of this.#kinds) {
      if (endsAt > now) break;
      this.#kinds.delete(key);
      if (leftOut !== undefined) summaries.push(summaryOf(leftOut, repeated, key === FURTHER));
    }
    return summaries;
  }

  #dueAt(): number | undefined {
    for (const { endsAt, leftOut } of this.#kinds.values()) if (leftOut !== undefined) return endsAt;
    return undefined;
  }
}

/** The level, component and message of a line. The message is constant and comes last; quotes in fields are escaped, so none looks like it. */
function kindOf(text: string): string {
  const level = /^\{"level":"([a-z]+)"/.exec(text)?.[1] ?? "";
  const component = /^[^}]*?"component":"([^"]*)"/.exec(text.slice(0, 256))?.[1] ?? "";
  const at = text.lastIndexOf('"msg":"');
  return `${level} ${component} ${at < 0 ? "" : text.slice(at, at + 256)}`;
}

function summaryOf(text: string, repeated: number, isOfMany: boolean): string {
  const { level, time, component, msg } = JSON.parse(text) as Readonly<Record<string, unknown>>;
  const about = isOfMany || component === undefined ? {} : { component };
  const message = isOfMany ? "lines of further kinds were left out of the log" : msg;
  return `${JSON.stringify({ level, time, ...about, repeated, seconds: WINDOW_MS / 1000, msg: message })}\n`;
}
