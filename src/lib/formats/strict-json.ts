import { InputError } from "../../errors.ts";

/** Limits of a JSON text, checked before schema validation. */
export interface JsonLimits {
  readonly maxBytes: number;
  readonly maxDepth: number;
  /** Refuses a name that is given twice in one object; of such names `JSON.parse` keeps the last silently (RFC 8259 §4). */
  readonly hasUniqueNames?: true;
}

/** Keys that JavaScript gives a meaning; rejected anywhere in JSON from outside. */
export const FORBIDDEN_KEYS: ReadonlySet<string> = new Set(["__proto__", "constructor", "prototype"]);
// An escaped letter can hide a forbidden key from the plain search, so a text with \u is walked.
const SUSPICIOUS = /__proto__|constructor|prototype|\\u/;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_OBJECT = 0x7b;
const isOpening = (code: number): boolean => code === OPEN_OBJECT || code === 0x5b;
const isClosing = (code: number): boolean => code === 0x7d || code === 0x5d;

/**
 * Parses JSON (RFC 8259) from outside: size first, then nesting depth, then syntax, then forbidden and repeated names.
 * @throws {InputError} `too-large`, `too-deep`, `invalid-utf8`, `invalid-json`, `forbidden-key` or `repeated-name`; the last two with the
 *   path in `details.field`.
 */
export function parseStrictJson(input: string | Uint8Array, limits: JsonLimits): unknown {
  const size = typeof input === "string" ? Buffer.byteLength(input) : input.byteLength;
  if (size > limits.maxBytes) {
    throw new InputError("too-large", `${size} bytes exceed the limit of ${limits.maxBytes}`);
  }
  const text = typeof input === "string" ? input : decodeUtf8(input);
  checkDepth(text, limits.maxDepth);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new InputError("invalid-json", `not JSON: ${(error as SyntaxError).message}`, { cause: error });
  }
  if (SUSPICIOUS.test(text)) checkKeys(value, "");
  const repeated = limits.hasUniqueNames === true ? repeatedName(text) : undefined;
  if (repeated !== undefined) {
    throw new InputError("repeated-name", `'${repeated}' is given twice`, { details: { field: repeated } });
  }
  return value;
}

/** Returns the number of values in a parsed JSON value, itself included. */
export function countValues(value: unknown): number {
  if (typeof value !== "object" || value === null) return 1;
  let count = 1;
  for (const inner of Object.values(value)) count += countValues(inner);
  return count;
}

function decodeUtf8(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (error) {
    throw new InputError("invalid-utf8", "not valid UTF-8", { cause: error });
  }
}

function checkDepth(text: string, maxDepth: number): void {
  if (!opensMoreThan(text, maxDepth)) return;
  let depth = 0;
  for (let i = 0; i < text.length; i += 1) {
    const code = text.charCodeAt(i);
    if (code === QUOTE) {
      i = endOfString(text, i + 1);
    } else if (isOpening(code)) {
      depth += 1;
      if (depth > maxDepth) throw new InputError("too-deep", `nested deeper than ${maxDepth} levels`);
    } else if (isClosing(code)) {
      depth -= 1;
    }
  }
}

/** Reports whether the text has so many opening brackets that its depth must be measured; most messages have few. */
function opensMoreThan(text: string, count: number): boolean {
  let opened = 0;
  for (const bracket of ["{", "["]) {
    for (let at = text.indexOf(bracket); at !== -1; at = text.indexOf(bracket, at + 1)) {
      opened += 1;
      if (opened > count) return true;
    }
  }
  return false;
}

/** Returns the position of the quote that closes the string at `from`, or the end of the text. */
function endOfString(text: string, from: number): number {
  let at = text.indexOf('"', from);
  while (at !== -1) {
    let backslashes = 0;
    while (text.charCodeAt(at - 1 - backslashes) === BACKSLASH) backslashes += 1;
    if (backslashes % 2 === 0) return at;
    at = text.indexOf('"', at + 1);
  }
  return text.length;
}

function checkKeys(value: unknown, path: string): void {
  if (typeof value !== "object" || value === null) return;
  for (const [key, inner] of Object.entries(value)) {
    const here = path === "" ? key : `${path}.${key}`;
    if (FORBIDDEN_KEYS.has(key)) {
      throw new InputError("forbidden-key", `the key ${here} is not allowed`, { details: { field: here } });
    }
    checkKeys(inner, here);
  }
}

/** An object or array that is open while a text is read. */
interface Open {
  /** Names of the object so far; undefined for an array. */
  readonly names: Set<string> | undefined;
  /** Latest name, or index in the array. */
  at: string | number;
}

/** Returns the path of the first name that is given twice in one object of a valid JSON text, such as `paths.0.port`. */
function repeatedName(text: string): string | undefined {
  const open: Open[] = [];
  let isName = false;
  for (let i = 0; i < text.length; i += 1) {
    const code = text.charCodeAt(i);
    const inner = open.at(-1);
    if (code === QUOTE) {
      const end = endOfString(text, i + 1);
      if (isName && inner?.names !== undefined) {
        const name = nameOf(text.slice(i, end + 1));
        inner.at = name;
        if (inner.names.has(name)) return open.map(({ at }) => at).join(".");
        inner.names.add(name);
        isName = false;
      }
      i = end;
    } else if (isOpening(code)) {
      isName = code === OPEN_OBJECT;
      open.push(isName ? { names: new Set(), at: "" } : { names: undefined, at: 0 });
    } else if (isClosing(code)) {
      open.pop();
    } else if (code === COMMA && inner !== undefined) {
      isName = inner.names !== undefined;
      if (typeof inner.at === "number") inner.at += 1;
    }
  }
  return undefined;
}

/** Returns the name that a quoted text spells; escapes can spell one name in several ways. */
const nameOf = (quoted: string): string => (quoted.includes("\\") ? String(JSON.parse(quoted)) : quoted.slice(1, -1));
