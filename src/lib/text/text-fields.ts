/** Parses a decimal integer of at least 0; undefined for any other text. */
export function toCount(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,20}$/.test(text) ? Number(text) : undefined;
}

/** Parses a decimal number; undefined for any other text. */
export function toDecimal(text: string | undefined): number | undefined {
  return text !== undefined && /^-?\d{1,20}(?:\.\d{1,20})?$/.test(text) ? Number(text) : undefined;
}

/** Splits a line into words at white space. */
export function fieldsOf(line: string): readonly string[] {
  return line.trim().split(/\s+/);
}

/** Parses lines of the form `name: value`; the first of duplicates wins. */
export function colonFields(text: string): ReadonlyMap<string, string> {
  return pairs(text, ":");
}

/** Parses lines of the form `NAME=value` and removes quotes (os-release(5)); the first of duplicates wins. */
export function shellFields(text: string): ReadonlyMap<string, string> {
  return new Map([...pairs(text, "=")].map(([name, value]) => [name, unquote(value)]));
}

function pairs(text: string, separator: string): Map<string, string> {
  const fields = new Map<string, string>();
  for (const line of text.split("\n")) {
    const at = line.indexOf(separator);
    if (at <= 0 || line.startsWith("#")) continue;
    const name = line.slice(0, at).trim();
    if (!fields.has(name)) fields.set(name, line.slice(at + 1).trim());
  }
  return fields;
}

function unquote(value: string): string {
  const quoted = /^(["'])(.*)\1$/s.exec(value);
  return quoted === null ? value : (quoted[2] ?? "").replaceAll(/\\(["'$`\\])/g, "$1");
}
