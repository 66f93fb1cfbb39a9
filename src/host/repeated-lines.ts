const WINDOW_MS = 60_000;
/** Limit of lines of one kind in a minute; higher for debug lines, whose reader wants each step. */
const MAX_LINES = { debug: 1000, other: 100 } as const;
/** Maximum number of kinds counted at once; the lines of further kinds count as one. */
const MAX_KINDS = 512;
const FURTHER = "further lines";

interface Counted {
  readonly endsAt: number;
  /** The first dropped line; the summary repeats its level, component and message. */
  dropped: string | undefined;
  passed: number;
  repeated: number;
}

/** Lines to write. */
export interface PassedLines {
  readonly lines: readonly string[];
  /** Time of the next summary, in monotonic milliseconds; undefined if nothing was dropped. */
  readonly dueAt: number | undefined;
}

/**
 * Limits repeated log lines by kind: level, component and message. Counts the lines of a kind above its limit, and reports the
 * count in one line when the minute ends. Pure: the caller passes the time in monotonic milliseconds.
 */
export class RepeatedLines {
  readonly #kinds = new Map<string, Counted>();

  /** Returns the lines to write for a JSON line of pino: due summaries, and the line itself unless it is dropped. */
  take(text: string, now: number): PassedLines {
    const summaries = this.#ended(now);
    const kind = kindOf(text);
    const key = this.#kinds.has(kind) || this.#kinds.size < MAX_KINDS ? kind : FURTHER;
    const counted = this.#kinds.get(key) ?? { endsAt: now + WINDOW_MS, dropped: undefined, passed: 0, repeated: 0 };
    this.#kinds.set(key, counted);
    const most = text.startsWith('{"level":"debug"') && key !== FURTHER ? MAX_LINES.debug : MAX_LINES.other;
    if (counted.passed < most) {
      counted.passed += 1;
      return { lines: [...summaries, text], dueAt: this.#dueAt() };
    }
    counted.dropped ??= text;
    counted.repeated += 1;
    return { lines: summaries, dueAt: this.#dueAt() };
  }

  /** Returns the summaries that are due. */
  due(now: number): PassedLines {
    return { lines: this.#ended(now), dueAt: this.#dueAt() };
  }

  #ended(now: number): readonly string[] {
    const summaries: string[] = [];
    // Windows end in the order in which they started.
    for (const [key, { endsAt, dropped, repeated }] of this.#kinds) {
      if (endsAt > now) break;
      this.#kinds.delete(key);
      if (dropped !== undefined) summaries.push(summaryOf(dropped, repeated, key === FURTHER));
    }
    return summaries;
  }

  #dueAt(): number | undefined {
    for (const { endsAt, dropped } of this.#kinds.values()) if (dropped !== undefined) return endsAt;
    return undefined;
  }
}

/**
 * Returns the level, component and message of a line. The message is constant and comes last; quotes in fields are escaped, so no
 * field can imitate it.
 */
function kindOf(text: string): string {
  const level = /^\{"level":"([a-z]+)"/.exec(text)?.[1] ?? "";
  const component = /^[^}]*?"component":"([^"]*)"/.exec(text.slice(0, 256))?.[1] ?? "";
  const at = text.lastIndexOf('"msg":"');
  return `${level} ${component} ${at < 0 ? "" : text.slice(at, at + 256)}`;
}

function summaryOf(text: string, repeated: number, isOfMany: boolean): string {
  const { level, time, component, msg } = JSON.parse(text) as Readonly<Record<string, unknown>>;
  const fields = isOfMany || component === undefined ? {} : { component };
  const message = isOfMany ? "lines of further kinds were dropped from the log" : msg;
  return `${JSON.stringify({ level, time, ...fields, repeated, seconds: WINDOW_MS / 1000, msg: message })}\n`;
}
