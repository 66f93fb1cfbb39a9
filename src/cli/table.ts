import { stripVTControlCharacters } from "node:util";
import type { Paint } from "./overlay-text.ts";

/** Rows below a heading, each column as wide as its widest cell; a column with nothing in it is left out. */
export function tableText(heading: readonly string[], rows: readonly (readonly string[])[], paint: Paint): string {
  const columns = heading.flatMap((_, at) => (rows.some((row) => (row[at] ?? "") !== "") ? [at] : []));
  const lines = [heading.map((cell) => paint("bold", cell)), ...rows];
  const widths = new Map(columns.map((at) => [at, Math.max(...lines.map((row) => width(row[at] ?? "")))]));
  return lines
    .map((row) => columns.map((at) => pad(row[at] ?? "", widths.get(at) ?? 0)).join("  "))
    .map((line) => `${line.trimEnd()}\n`)
    .join("");
}

function pad(text: string, columns: number): string {
  return text + " ".repeat(Math.max(0, columns - width(text)));
}

function width(text: string): number {
  return stripVTControlCharacters(text).length;
}
