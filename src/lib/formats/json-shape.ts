/** The value as a JSON object, or undefined when it is something else. */
export function asObject(value: unknown): Readonly<Record<string, unknown>> | undefined {
  return isObject(value) ? value : undefined;
}

/** The elements of a JSON array; none when it is something else. */
export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** Text that says something; undefined for the empty text, which stands for an absent field, and for anything else. */
export function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** A number, or text that may stand for one, as text. */
export function scalarOf(value: unknown): string | undefined {
  return typeof value === "number" ? String(value) : textOf(value);
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
