/** Returns a JSON object, or undefined for any other value. */
export function asObject(value: unknown): Readonly<Record<string, unknown>> | undefined {
  return isObject(value) ? value : undefined;
}

/** Returns the elements of a JSON array, or an empty list for any other value. */
export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** Returns non-empty text; undefined for empty text, which stands for an absent field, and for any other value. */
export function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** Returns a number or text as text. */
export function scalarOf(value: unknown): string | undefined {
  return typeof value === "number" ? String(value) : textOf(value);
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
