import { z } from "zod";
import { InputError, SessionError } from "../../errors.ts";
import { plainLine, plainText, safeJson } from "../../lib/text/terminal-text.ts";
import { LOG_LINES_MAX, READ_SOCKET } from "../../protocol/local/api.ts";
import { LogLine, TriggerLine } from "../../protocol/local/answers.ts";
import { adminRequest, follow } from "../frame/client.ts";
import type { ExitClass } from "../frame/exit-codes.ts";
import type { Style } from "../frame/terminal.ts";
import type { Call, Verb } from "../frame/verb.ts";
import { COMMON } from "../frame/verb-options.ts";

const STYLES: Readonly<Record<LogLine["level"], Style | undefined>> = {
  trace: "dim",
  debug: "dim",
  info: undefined,
  warn: "yellow",
  error: "red",
  fatal: "red",
};

/** Lines in the format of `node-debug`. */
const DebugText = z.object({ debug: z.string() });

export const logsVerb: Verb = {
  name: "logs",
  summary: "show recent log lines of the agent",
  arguments: [],
  options: {
    lines: { short: "n", value: "N", help: "how many lines back (100)" },
    follow: { short: "f", help: "follow new lines until Ctrl-C" },
    debug: {
      value: "PLUGIN",
      help: "also follow debug lines of a component or a section, or 'any'; needs root",
      complete: "none",
    },
    ...COMMON,
  },
  exits: ["ok", "failed", "usage", "unreachable", "timeout"],
  example: "holdfast logs -n 20 -f",
  output: z.union([LogLine, DebugText]),
  async run(call) {
    const { values, terminal, settings, signal } = call;
    if (values["debug"] !== undefined) return debug(call, String(values["debug"]));
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

/** Follows the agent's log with debug lines, until the agent's time limit for them. */
async function debug(call: Call, plugin: string): Promise<ExitClass> {
  const { terminal, settings, signal } = call;
  if (plugin.length < 1 || plugin.length > 64) throw new InputError("usage", "--debug needs a name, or 'any'");
  try {
    for await (const line of follow(call, adminRequest("/v1/trigger/node-debug", { plugin }), TriggerLine)) {
      if (line.kind === "error") throw new SessionError(line.code, line.message);
      if (line.kind === "result") return "ok";
      const text = typeof line.data === "string" ? line.data : "";
      if (!settings.isJson) terminal.out(plainText(text));
      else for (const one of text.split("\n").slice(0, -1)) terminal.out(`${safeJson({ debug: one })}\n`);
    }
  } catch (error) {
    // Ctrl-C is how it usually ends.
    if (signal.aborted) return "ok";
    throw error;
  }
  throw new SessionError("interrupted", "the agent ended the debug lines without a result: see 'holdfast logs'");
}

function lineCount(value: string | boolean | undefined): number {
  if (value === undefined) return 100;
  const count = typeof value === "string" && /^\d{1,6}$/.test(value) ? Number(value) : Number.NaN;
  if (count <= LOG_LINES_MAX) return count;
  throw new InputError("usage", `--lines needs a whole number up to ${LOG_LINES_MAX}, not ${String(value)}`);
}

/** Formats a line: `2026-05-01T12:00:00.000Z info session: connected url="wss://…"`; further lines of a message are indented. */
function logText({ terminal }: Call, { time, level, component, message, fields }: LogLine): string {
  const style = STYLES[level];
  const head = `${new Date(time).toISOString()} ${style === undefined ? level : terminal.style(style, level)}`;
  const source = component === undefined ? "" : ` ${plainLine(component)}:`;
  const text = plainText(message).trimEnd().replaceAll("\n", "\n  ");
  const data = Object.entries(fields ?? {}).map(([name, value]) => ` ${plainLine(name)}=${safeJson(value)}`);
  return `${head}${source} ${text}${data.join("")}\n`;
}
