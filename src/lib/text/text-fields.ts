/** A whole number of at least 0 in decimal, or undefined when the text is anything else. */
export function toCount(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,20}$/.test(text) ? Number(text) : undefined;
}

/** A decimal number, or undefined when the text is anything else. */
export function toDecimal(text: string | undefined): number | undefined {
  return text !== undefined && /^-?\d{1,20}(?:\.\d{1,20})?$/.test(text) ? Number(text) : undefined;
}

/** The words of a line, without the blanks around them. */
export function fieldsOf(line: string): readonly string[] {
  return line.trim().split(/\s+/);
}

/** Lines of the form `name: value` as a map; the first of several wins. */
export function colonFields(text: string): ReadonlyMap<string, string> {
  return pairs(text, ":");
}

/** Lines of the form `NAME=value` as a map, quotes taken off (os-release(5)); the first of several wins. */
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
