import { stripVTControlCharacters } from "node:util";

// Control characters except tab and newline; format characters, which hide or reorder text (joiners included, since they make two names
// look alike); and the characters that end a line in some terminals.
const UNSAFE = /[^\P{Cc}\n\t]|[\p{Cf}\u2028\u2029]/gu;
// JSON.stringify leaves only the newlines of the indentation.
const UNSAFE_IN_JSON = /[^\P{Cc}\n]|[\p{Cf}\u2028\u2029]/gu;

/** Removes escape sequences, control and format characters from text for a terminal; keeps tabs and newlines. */
export function plainText(text: string): string {
  return stripVTControlCharacters(text.replaceAll("\r\n", "\n")).replace(UNSAFE, "");
}

/** Cleans text as `terminalText` does and turns newlines and tabs into spaces. */
export function plainLine(text: string): string {
  return plainText(text).replace(/[\n\t]+/g, " ");
}

/** Copies a JSON value with every string and key cleaned to one plain line. */
export function plainValue<T>(value: T): T {
  return plain(value) as T; // the copy has the shape of the original
}

function plain(value: unknown): unknown {
  if (typeof value === "string") return plainLine(value);
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [plainLine(key), plain(inner)]));
}

/** Serializes a value to JSON (RFC 8259) that is safe on a terminal: unsafe characters become `\u` escapes. */
export function safeJson(value: unknown, indent?: number): string {
  const text = JSON.stringify(value, undefined, indent) ?? "null";
  return text.replace(UNSAFE_IN_JSON, (char) => char.split("").map(escaped).join(""));
}

/** Returns the JSON escape of one UTF-16 unit. */
const escaped = (unit: string): string => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
