/** Returns a table as CSV (RFC 4180). A text that a spreadsheet would take for a formula gets an apostrophe in front. */
export function csv(columns: readonly string[], rows: readonly object[]): string {
  const lines = rows.map((row) => {
    const values = new Map<string, unknown>(Object.entries(row));
    return columns.map((column) => cell(values.get(column)));
  });
  return [columns.map(cell), ...lines].map((line) => `${line.join(",")}\r\n`).join("");
}

function cell(value: unknown): string {
  if (typeof value === "number") return String(value);
  const text = typeof value === "string" ? value : "";
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return `"${safe.replaceAll('"', '""')}"`;
}
