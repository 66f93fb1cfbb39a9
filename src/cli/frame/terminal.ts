import { stripVTControlCharacters, styleText } from "node:util";
import { errnoOf } from "../../errors.ts";
import type { Clock } from "../../host/clock.ts";
import { readAnswer } from "../../host/process/text-input.ts";
import { isColorUnwanted } from "./settings.ts";

export type Style = "green" | "yellow" | "red" | "bold" | "dim";
/** Colours text, or leaves it alone where colours are unwanted. */
export type Paint = (style: Style, text: string) => string;

/** What the text of a report depends on beside the report. */
export interface View {
  /** Unix milliseconds. */
  readonly now: number;
  /** Width of a line; Infinity without a terminal. */
  readonly columns: number;
  readonly paint: Paint;
}

/** Where output goes. What it is given is shown as it is: text of others is cleaned before. */
export interface Terminal {
  out(text: string): void;
  err(text: string): void;
  /** One line from standard input; undefined when it ends first. */
  readLine(signal: AbortSignal): Promise<string | undefined>;
  /** Whether a person looks at the output. */
  readonly isInteractive: boolean;
  /** Infinite where it is no terminal. */
  size(): { readonly columns: number; readonly rows: number };
  readonly style: Paint;
}

/** For a program nothing is broken into lines. */
const NO_TERMINAL = { columns: Infinity, rows: Infinity };
/** Of text that is meant to be read, wherever it goes. */
const READING_COLUMNS = 80;

/** The process's own output. A reader that has gone away ends the process quietly, as other tools end. */
export function processTerminal(): Terminal {
  const { stdout, stderr } = process;
  stdout.on("error", (error) => {
    if (errnoOf(error) === "EPIPE") process.exit(0);
    stderr.write(`holdfast: cannot write the output: ${error.message}\n`);
    process.exit(1);
  });
  // Nobody is left to be told.
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

/** How wide help is: as the terminal, or as a page where there is none. */
export function readingColumns(terminal: Terminal): number {
  const { columns } = terminal.size();
  return Number.isFinite(columns) ? columns : READING_COLUMNS;
}

/** Rows of a label and its text, the text broken between words so that no line is wider than `columns` where words allow it. */
export function layOut(rows: readonly (readonly [label: string, text: string])[], columns: number): string {
  const indent = Math.max(...rows.map(([label]) => width(label))) + 2;
  const lines = rows.flatMap(([label, text]) =>
    wrap(text, columns - indent).map((line, at) => (at === 0 ? pad(label, indent) : " ".repeat(indent)) + line),
  );
  return lines.map((line) => `${line.trimEnd()}\n`).join("");
}

/** Lines no wider than `columns` where words allow it. */
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
