import { stripVTControlCharacters, styleText } from "node:util";
import { errnoOf } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { readAnswer } from "../../host/process/text-input.ts";
import { isColorUnwanted } from "./settings.ts";

export type Style = "green" | "yellow" | "red" | "bold" | "dim";
/** Colours text; returns it unchanged if colours are disabled. */
export type Paint = (style: Style, text: string) => string;

/** Context for formatting a report. */
export interface View {
  /** Unix milliseconds. */
  readonly now: number;
  /** Width of a line; Infinity without a terminal. */
  readonly columns: number;
  readonly paint: Paint;
}

/** Output of a verb. Text is written unchanged; foreign text must be sanitized before. */
export interface Terminal {
  out(text: string): void;
  err(text: string): void;
  /** Reads one line from standard input; undefined at its end. */
  readLine(signal: AbortSignal): Promise<string | undefined>;
  /** Whether standard output is a terminal. */
  readonly isInteractive: boolean;
  /** Infinity without a terminal. */
  size(): { readonly columns: number; readonly rows: number };
  readonly style: Paint;
}

/** Disables line breaks for pipes. */
const NO_TERMINAL = { columns: Infinity, rows: Infinity };
/** Width of help text without a terminal. */
const READING_COLUMNS = 80;

/** Returns the terminal of this process. A closed pipe ends the process quietly, as with other tools. */
export function processTerminal(): Terminal {
  const { stdout, stderr } = process;
  stdout.on("error", (error) => {
    if (errnoOf(error) === "EPIPE") process.exit(0);
    stderr.write(`holdfast: cannot write the output: ${error.message}\n`);
    process.exit(1);
  });
  // There is nowhere left to report the error.
  stderr.on("error", () => undefined);
  const isColored = stdout.isTTY && !isColorUnwanted();
  return {
    out: (text) => void stdout.write(text),
    err: (text) => void stderr.write(text),
    readLine: readAnswer,
    isInteractive: stdout.isTTY,
    size: () => (stdout.isTTY ? { columns: stdout.columns || 80, rows: stdout.rows || 24 } : NO_TERMINAL),
    style: (style, text) => (isColored ? styleText(style, text, { validateStream: false }) : text),
  };
}

/** Returns the view of this moment. */
export function viewOf({ terminal, clock }: { readonly terminal: Terminal; readonly clock: Clock }): View {
  return { now: clock.now(), columns: terminal.size().columns, paint: terminal.style };
}

/** Returns the width for help text: that of the terminal, or 80 columns without one. */
export function readingColumns(terminal: Terminal): number {
  const { columns } = terminal.size();
  return Number.isFinite(columns) ? columns : READING_COLUMNS;
}

/** Formats rows of a label and its text, wrapped between words to `columns`. */
export function layOut(rows: readonly (readonly [label: string, text: string])[], columns: number): string {
  const indent = Math.max(...rows.map(([label]) => width(label))) + 2;
  const lines = rows.flatMap(([label, text]) =>
    wrap(text, columns - indent).map((line, at) => (at === 0 ? pad(label, indent) : " ".repeat(indent)) + line),
  );
  return lines.map((line) => `${line.trimEnd()}\n`).join("");
}

/** Wraps text between words to `columns`. */
export function wrap(text: string, columns: number): readonly string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    const longer = line === "" ? word : `${line} ${word}`;
    if (line !== "" && width(longer) > columns) {
      lines.push(line);
      line = word;
    } else {
      line = longer;
    }
  }
  return [...lines, line];
}

function pad(text: string, columns: number): string {
  return text + " ".repeat(Math.max(0, columns - width(text)));
}

function width(text: string): number {
  return stripVTControlCharacters(text).length;
}
