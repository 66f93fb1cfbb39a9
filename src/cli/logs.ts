import { InputError } from "../errors.ts";
import { plainLine, plainText, safeJson } from "../lib/terminal-text.ts";
import { LOG_LINES_MAX, READ_SOCKET } from "../protocol/local-api.ts";
import { LogLine } from "../protocol/local-answers.ts";
import { follow } from "./client.ts";
import type { Style } from "./terminal.ts";
import type { Call, VerbProgram } from "./verb.ts";

const STYLES: Readonly<Record<LogLine["level"], Style | undefined>> = {
  trace: "dim",
  debug: "dim",
  info: undefined,
  warn: "yellow",
  error: "red",
  fatal: "red",
};

export const logsVerb: VerbProgram = {
  output: LogLine,
  async run(call) {
    const { values, terminal, settings, signal } = call;
    const isFollowing = values["follow"] === true;
    const query = new URLSearchParams({ lines: String(lineCount(values["lines"])), follow: isFollowing ? "1" : "0" });
    try {
      const request = { method: "GET", path: `/v1/logs?${query.toString()}`, socket: READ_SOCKET } as const;
      for await (const line of follow(call, request, LogLine)) {
        terminal.out(settings.isJson ? `${safeJson(line)}\n` : logText(call, line));
      }
    } catch (error) {
      // Ctrl-C is how following ends.
      if (signal.aborted && isFollowing) return "ok";
      throw error;
    }
    return "ok";
  },
};

function lineCount(value: string | boolean | undefined): number {
  if (value === undefined) return 100;
  const count = typeof value === "string" && /^\d{1,6}$/.test(value) ? Number(value) : Number.NaN;
  if (count <= LOG_LINES_MAX) return count;
  throw new InputError("usage", `--lines needs a whole number up to ${LOG_LINES_MAX}, not ${String(value)}`);
}

/** `2026-05-01T12:00:00.000Z info session: connected url="wss://…"`; further lines of a message are indented. */
function logText({ terminal }: Call, { time, level, component, message, fields }: LogLine): string {
  const style = STYLES[level];
  const head = `${new Date(time).toISOString()} ${style === undefined ? level : terminal.style(style, level)}`;
  const source = component === undefined ? "" : ` ${plainLine(component)}:`;
  const text = plainText(message).trimEnd().replaceAll("\n", "\n  ");
  const data = Object.entries(fields ?? {}).map(([name, value]) => ` ${plainLine(name)}=${safeJson(value)}`);
  return `${head}${source} ${text}${data.join("")}\n`;
}
