import { stripVTControlCharacters } from "node:util";

// Control characters but tab and newline; format characters, which hide or turn text around, even the joiners of emoji: unseen they
// would make two names look alike; and what ends a line in some terminals.
const UNSAFE = /[^\P{Cc}\n\t]|[\p{Cf}\u2028\u2029]/gu;
// Only the newlines of the indentation are left by JSON.stringify.
const UNSAFE_IN_JSON = /[^\P{Cc}\n]|[\p{Cf}\u2028\u2029]/gu;

/** Text that may be shown on a terminal: escape sequences, control and format characters are gone, tabs and newlines stay. */
export function plainText(text: string): string {
  return stripVTControlCharacters(text.replaceAll("\r\n", "\n")).replace(UNSAFE, "");
}

/** The same on one line: newlines and tabs become spaces. */
export function plainLine(text: string): string {
  return plainText(text).replace(/[\n\t]+/g, " ");
}

/** A copy of a JSON value in which every string and key is one plain line. */
export function plainValue<T>(value: T): T {
  return plain(value) as T; // the copy has the shape of the original
}

function plain(value: unknown): unknown {
  if (typeof value === "string") return plainLine(value);
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [plainLine(key), plain(inner)]));
}

/** JSON (RFC 8259) of exactly this value that is safe on a terminal: unsafe characters are written as `\u` escapes. */
export function safeJson(value: unknown, indent?: number): string {
  const text = JSON.stringify(value, undefined, indent) ?? "null";
  return text.replace(UNSAFE_IN_JSON, (char) => char.split("").map(escaped).join(""));
}

/** One UTF-16 unit, as JSON takes it. */
const escaped = (unit: string): string => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
