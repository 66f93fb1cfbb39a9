import { toError } from "../errors.ts";
import { plainLine, safeJson } from "../lib/terminal-text.ts";
import { READ_SOCKET, Status } from "../protocol/local-api.ts";
import { ask } from "./client.ts";
import { exitClassOf, type ExitClass } from "./exit-codes.ts";
import { standing, statusText } from "./status-view.ts";
import type { Call, VerbProgram } from "./verb.ts";

const WATCH_MS = 1000;
const upBy = (lines: number): string => (lines === 0 ? "" : `\u001b[${lines}F`);
const CLEAR_LINE = "\u001b[K";
const CLEAR_BELOW = "\u001b[J";
const HIDE_CURSOR = "\u001b[?25l";
const SHOW_CURSOR = "\u001b[?25h";

export const statusVerb: VerbProgram = {
  output: Status,
  async run(call) {
    if (call.values["watch"] === true) return watch(call);
    const status = await fetchStatus(call);
    call.terminal.out(show(call, status));
    return standing(status);
  },
};

/** The agent's status at this moment. */
export function fetchStatus(call: Call): Promise<Status> {
  return ask(call, { method: "GET", path: "/v1/status", socket: READ_SOCKET }, Status);
}

function show({ settings, terminal, clock }: Call, status: Status): string {
  if (settings.isJson) return `${safeJson(status)}\n`;
  return statusText(status, clock.now(), terminal.size().columns, (style, text) => terminal.style(style, text));
}

/** Shows the status every second until Ctrl-C; an agent that is away is shown as such and waited for. */
async function watch(call: Call): Promise<ExitClass> {
  const { terminal, settings, clock, signal } = call;
  const isDrawn = terminal.isInteractive && !settings.isJson;
  if (isDrawn) terminal.out(HIDE_CURSOR);
  let drawn = 0;
  try {
    for (;;) {
      const text = await fetchStatus(call).then(
        (status) => show(call, status),
        (error: unknown) => absent(call, toError(error)),
      );
      if (signal.aborted) return "ok";
      if (isDrawn) {
        const lines = linesThatFit(text, terminal.size().rows);
        terminal.out(upBy(drawn) + lines.map((line) => `${line}${CLEAR_LINE}\n`).join("") + CLEAR_BELOW);
        drawn = lines.length;
      } else {
        terminal.out(text + (settings.isJson ? "" : "\n"));
      }
      await clock.sleep(WATCH_MS, signal);
    }
  } catch (error) {
    if (signal.aborted) return "ok";
    throw error;
  } finally {
    if (isDrawn) terminal.out(SHOW_CURSOR);
  }
}

function absent({ settings }: Call, error: Error): string {
  const code = "code" in error ? String(error.code) : exitClassOf(error);
  return settings.isJson
    ? `${safeJson({ error: { code, message: error.message } })}\n`
    : `${plainLine(error.message)}\n`;
}

/** Each picture is drawn over the one before and over nothing else: never more lines than fit. */
function linesThatFit(text: string, rows: number): readonly string[] {
  return text
    .trimEnd()
    .split("\n")
    .slice(0, Math.max(1, rows - 1));
}
