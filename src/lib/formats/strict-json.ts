import { InputError } from "../../errors.ts";

/** Limits of a JSON text, checked before schema validation. */
export interface JsonLimits {
  readonly maxBytes: number;
  readonly maxDepth: number;
}

/** Keys that JavaScript gives a meaning; rejected anywhere in JSON from outside. */
export const FORBIDDEN_KEYS: ReadonlySet<string> = new Set(["__proto__", "constructor", "prototype"]);
// An escaped letter can hide a forbidden key from the plain search, so a text with \u is walked.
const SUSPICIOUS = /__proto__|constructor|prototype|\\u/;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const isOpening = (code: number): boolean => code === 0x7b || code === 0x5b;
const isClosing = (code: number): boolean => code === 0x7d || code === 0x5d;

/**
 * Parses JSON (RFC 8259) from outside: size first, then nesting depth, then syntax, then forbidden keys.
 * @throws {InputError} `too-large`, `too-deep`, `invalid-utf8`, `invalid-json` or `forbidden-key`.
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
  return value;
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
  if (Array.isArray(value)) {
    value.forEach((item, index) => checkKeys(item, `${path}[${index}]`));
    return;
  }
  for (const [key, inner] of Object.entries(value)) {
    const here = path === "" ? key : `${path}.${key}`;
    if (FORBIDDEN_KEYS.has(key)) throw new InputError("forbidden-key", `the key ${here} is not allowed`);
    checkKeys(inner, here);
  }
}
