import { stripVTControlCharacters } from "node:util";
import type { Paint } from "../frame/terminal.ts";

/** No column is cut below this. */
const NARROWEST = 8;

/**
 * Formats rows below a heading, each column as wide as its widest cell, and omits empty columns. Narrows the widest columns if the table is
 * wider than `atMost`; painted cells are not cut.
 */
export function tableText(
  heading: readonly string[],
  rows: readonly (readonly string[])[],
  paint: Paint,
  atMost = Infinity,
): string {
  const columns = heading.flatMap((_, at) => (rows.some((row) => (row[at] ?? "") !== "") ? [at] : []));
  const lines = [heading.map((cell) => paint("bold", cell)), ...rows];
  const widest = columns.map((at) => Math.max(...lines.map((row) => width(row[at] ?? ""))));
  const least = columns.map((at) => Math.max(NARROWEST, width(heading[at] ?? "")));
  const widths = fitted(widest, least, atMost - 2 * (columns.length - 1));
  return lines
    .map((row) => columns.map((at, nth) => pad(cut(row[at] ?? "", widths[nth] ?? 0), widths[nth] ?? 0)).join("  "))
    .map((line) => `${line.trimEnd()}\n`)
    .join("");
}

/** Reduces the largest widths until their sum fits, or all are at their minimum. */
function fitted(widths: readonly number[], least: readonly number[], room: number): readonly number[] {
  const fitting = [...widths];
  for (let over = fitting.reduce((sum, one) => sum + one, 0) - room; over > 0; over -= 1) {
    const spare = fitting.map((one, at) => (one > (least[at] ?? 0) ? one : 0));
    const most = Math.max(...spare);
    if (most === 0) break;
    fitting[spare.indexOf(most)] = most - 1;
  }
  return fitting;
}

function cut(text: string, columns: number): string {
  return text.length <= columns || text.includes("\u001b") ? text : `${text.slice(0, columns - 1)}…`;
}

function pad(text: string, columns: number): string {
  return text + " ".repeat(Math.max(0, columns - width(text)));
}

function width(text: string): number {
  return stripVTControlCharacters(text).length;
}
