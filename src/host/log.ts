import { pino, type Logger, type DestinationStream } from "pino";
import { InputError, SessionError } from "../errors.ts";
import { systemClock, type Clock } from "./clock.ts";
import { RepeatedLines, type PassedLines } from "./repeated-lines.ts";

/** One numbered log line as JSON text. */
export interface LogLine {
  readonly seq: number;
  readonly text: string;
}

/** The newest log lines, kept in memory. */
export interface LogMemory {
  /** Returns the last `count` lines, oldest first. */
  last(count: number): readonly LogLine[];
  /** Calls `listener` for each new line; the returned function unsubscribes. */
  follow(listener: (line: LogLine) => void): () => void;
  /**
   * Calls `listener` with each new line, including `debug` lines and lines that are not written or kept. The returned function
   * unsubscribes. The listener must not log.
   */
  tap(listener: (text: string) => void): () => void;
}

const MAX_LINES = 2000;
const MAX_BYTES = 512 * 1024;
/** Fields that are removed wherever they appear, because they hold secrets; the schemas keep secrets out of messages. */
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
 * Serializes an error like pino, but appends the message of a cause only if the error does not contain it. Errors of the peer
 * have no stack, because our code is not at fault.
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

/** Returns this process's standard output. A reader that closes it does not stop the program. */
export function standardOutput(isJournal: boolean): { write(line: string): void } {
  process.stdout.on("error", () => undefined);
  return { write: (line) => void process.stdout.write(isJournal ? withPriority(line) : line) };
}

const PRIORITIES: Readonly<Record<string, number>> = { fatal: 2, error: 3, warn: 4, info: 6, debug: 7, trace: 7 };

/** Prefixes a line with its journald priority (sd-daemon(3)), for `journalctl -p`. */
export function withPriority(line: string): string {
  return `<${PRIORITIES[levelOf(line)] ?? 6}>${line}`;
}

/**
 * Returns the program's root logger: JSON lines in UTC to `destination`, without secrets, with a limit on repeated lines; the
 * newest lines stay in memory. `debug` gives reasons, `info` state changes, `warn` unusual but handled events, `error` events
 * that need a person.
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
  let cancelTimer: (() => void) | undefined;
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
    if (passed.dueAt === undefined || cancelTimer !== undefined) return;
    cancelTimer = clock.after(Math.max(0, passed.dueAt - clock.elapsed()), () => {
      cancelTimer = undefined;
      pass(repeated.due(clock.elapsed()));
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
        // A child's level is fixed at creation, so all levels are enabled; a line without a reader is not formatted.
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

/** Returns pino's number of a level; `silent` is above all. */
const valueOf = (level: string): number => pino.levels.values[level] ?? Infinity;
