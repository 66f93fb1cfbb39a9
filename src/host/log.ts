import { pino, type Logger, type DestinationStream } from "pino";
import { InputError, SessionError } from "../errors.ts";
import { systemClock, type Clock } from "./clock.ts";
import { RepeatedLines, type PassedLines } from "./repeated-lines.ts";

/** One log line as JSON text, numbered. */
export interface LogLine {
  readonly seq: number;
  readonly text: string;
}

/** The newest log lines, for whoever asks the program itself. */
export interface LogMemory {
  /** The last `count` lines, oldest first. */
  last(count: number): readonly LogLine[];
  /** Calls `listener` for each line from now on; the returned function stops that. */
  follow(listener: (line: LogLine) => void): () => void;
  /**
   * Calls `listener` with each line from now on, those of level `debug` included, also if they are not written or kept; the returned
   * function stops that. The listener must not log.
   */
  tap(listener: (text: string) => void): () => void;
}

const MAX_LINES = 2000;
const MAX_BYTES = 512 * 1024;
/** Fields that hold secrets wherever they appear; the schemas keep them out of messages. */
const SECRETS = [
  "authorization",
  "password",
  "secret",
  "token",
  "license",
  "ticket",
  "jws",
  "d",
  "apiKey",
  "clientSecret",
];

const MAX_CAUSES = 8;
const MAX_MESSAGE = 4096;

/**
 * As pino writes an error, but with the messages of its causes only where it does not repeat them itself. The mistakes of the other
 * side are without a stack: it would name our code, which is not at fault.
 */
function serializeError(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  const message = messageOf(error, MAX_CAUSES).slice(0, MAX_MESSAGE);
  if (error instanceof InputError || error instanceof SessionError) {
    return { type: error.name, code: error.code, message, ...(error.details && { details: error.details }) };
  }
  return { ...pino.stdSerializers.err(error), message };
}

function messageOf({ message, cause }: Error, depth: number): string {
  if (!(cause instanceof Error) || depth === 0) return message;
  const because = messageOf(cause, depth - 1);
  return message.includes(because) ? message : `${message}: ${because}`;
}

/** This process's standard output, which is the journal or not; what reads it may go away, which is no reason to end. */
export function standardOutput(isJournal: boolean): { write(line: string): void } {
  process.stdout.on("error", () => undefined);
  return { write: (line) => void process.stdout.write(isJournal ? withPriority(line) : line) };
}

const PRIORITIES: Readonly<Record<string, number>> = { fatal: 2, error: 3, warn: 4, info: 6, debug: 7, trace: 7 };

/** With its level as journald knows it, in front (sd-daemon(3)); `journalctl -p` asks for it. */
export function withPriority(line: string): string {
  return `<${PRIORITIES[levelOf(line)] ?? 6}>${line}`;
}

/**
 * Makes the program's root logger: JSON lines to `destination`, in UTC, the newest kept in memory, secrets removed, and lines that repeat
 * limited. `debug` says why, `info` that state changed, `warn` unusual and handled, `error` that a person must act.
 */
export function rootLogger({
  level,
  destination,
  clock = systemClock(),
}: {
  readonly level: string;
  readonly destination: { write(line: string): void };
  readonly clock?: Clock;
}): {
  readonly log: Logger;
  readonly memory: LogMemory;
} {
  const lines: LogLine[] = [];
  const listeners = new Set<(line: LogLine) => void>();
  const taps = new Set<(text: string) => void>();
  const least = valueOf(level);
  const repeated = new RepeatedLines();
  let cancelLook: (() => void) | undefined;
  let bytes = 0;
  let seq = 0;
  const put = (text: string): void => {
    destination.write(text);
    seq += 1;
    const line = { seq, text: text.trimEnd() };
    lines.push(line);
    bytes += line.text.length;
    while (lines.length > MAX_LINES || bytes > MAX_BYTES) bytes -= lines.shift()?.text.length ?? 0;
    for (const listener of listeners) listener(line);
  };
  const pass = (passed: PassedLines): void => {
    for (const text of passed.lines) put(text);
    if (passed.dueAt === undefined || cancelLook !== undefined) return;
    cancelLook = clock.after(Math.max(0, passed.dueAt - clock.elapsed()), () => {
      cancelLook = undefined;
      pass(repeated.look(clock.elapsed()));
    });
  };
  const stream: DestinationStream = {
    write(text) {
      for (const tap of taps) tap(text);
      if (valueOf(levelOf(text)) >= least) pass(repeated.take(text, clock.elapsed()));
    },
  };
  const log = pino(
    {
      level: least < valueOf("debug") ? level : "debug",
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      serializers: { err: serializeError },
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: SECRETS.flatMap((name) => [name, `*.${name}`]), censor: "[removed]" },
      hooks: {
        // The level of a child is fixed when it is made: all levels are open, and a line that nobody wants is not formatted.
        logMethod(args, method, number) {
          if (number >= least || taps.size > 0) method.apply(this, args);
        },
      },
    },
    stream,
  );
  return {
    log,
    memory: {
      last: (count) => lines.slice(Math.max(0, lines.length - count)),
      follow(listener) {
        listeners.add(listener);
        return () => listeners.delete(listener);
      },
      tap(listener) {
        taps.add(listener);
        return () => taps.delete(listener);
      },
    },
  };
}

const levelOf = (text: string): string => /^\{"level":"([a-z]+)"/.exec(text)?.[1] ?? "info";

/** The number of a level in pino; `silent` is above all. */
const valueOf = (level: string): number => pino.levels.values[level] ?? Infinity;
