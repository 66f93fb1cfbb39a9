import { pino, type Logger, type DestinationStream } from "pino";
import { InputError, SessionError } from "../errors.ts";

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
  const level = /^\{"level":"([a-z]+)"/.exec(line)?.[1] ?? "info";
  return `<${PRIORITIES[level] ?? 6}>${line}`;
}

/**
 * Makes the program's root logger: JSON lines to `destination`, in UTC, the newest kept in memory, secrets removed.
 * `debug` says why, `info` that state changed, `warn` unusual and handled, `error` that a person must act.
 */
export function rootLogger(options: { readonly level: string; readonly destination: { write(line: string): void } }): {
  readonly log: Logger;
  readonly memory: LogMemory;
} {
  const lines: LogLine[] = [];
  const listeners = new Set<(line: LogLine) => void>();
  let bytes = 0;
  let seq = 0;
  const stream: DestinationStream = {
    write(text) {
      options.destination.write(text);
      seq += 1;
      const line = { seq, text: text.trimEnd() };
      lines.push(line);
      bytes += line.text.length;
      while (lines.length > MAX_LINES || bytes > MAX_BYTES) bytes -= lines.shift()?.text.length ?? 0;
      for (const listener of listeners) listener(line);
    },
  };
  const log = pino(
    {
      level: options.level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      serializers: { err: serializeError },
      formatters: { level: (label) => ({ level: label }) },
      redact: { paths: SECRETS.flatMap((name) => [name, `*.${name}`]), censor: "[removed]" },
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
    },
  };
}
