import { toError } from "../../errors.ts";
import { plainLine, safeJson } from "../../lib/text/terminal-text.ts";
import { exitClassOf, type ExitClass } from "./exit-codes.ts";
import type { Call } from "./verb.ts";

const WATCH_MS = 1000;
const upBy = (lines: number): string => (lines === 0 ? "" : `\u001b[${lines}F`);
const CLEAR_LINE = "\u001b[K";
const CLEAR_BELOW = "\u001b[J";
const HIDE_CURSOR = "\u001b[?25l";
const SHOW_CURSOR = "\u001b[?25h";

/** Shows `picture` every second until Ctrl-C. While the agent is unreachable, it shows the error and retries. */
export async function watch(call: Call, picture: () => Promise<string>): Promise<ExitClass> {
  const { terminal, settings, clock, signal } = call;
  const isDrawn = terminal.isInteractive && !settings.isJson;
  if (isDrawn) terminal.out(HIDE_CURSOR);
  let drawn = 0;
  try {
    for (;;) {
      const text = await picture().catch((error: unknown) => absent(call, toError(error)));
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

/** Truncates a picture to the rows of the terminal, so that the next one overwrites it. */
function linesThatFit(text: string, rows: number): readonly string[] {
  return text
    .trimEnd()
    .split("\n")
    .slice(0, Math.max(1, rows - 1));
}
