import type { z } from "zod";
import { InternalError } from "../../errors.ts";

/** Returns the JSON of a text column parsed by a schema. @throws {InternalError} `bad-row` if it does not match, as all readers here */
export function json<C extends string, T>(row: Readonly<Record<C, string>>, column: C, schema: z.ZodType<T>): T {
  return parsed(column, JSON.parse(row[column]), schema);
}

/** Returns undefined for NULL, and for a column that was not read, as all readers of columns that may be NULL. */
export function maybeJson<C extends string, T>(
  row: Readonly<Partial<Record<C, string | null>>>,
  column: C,
  schema: z.ZodType<T>,
): T | undefined {
  const text = row[column] ?? null;
  return text === null ? undefined : parsed(column, JSON.parse(text), schema);
}

/** Limits of what is remembered: texts, and characters of each. */
const MAX_TEXTS = 20_000;
const MAX_TEXT_CHARS = 512;

/**
 * Parses the JSON texts of a column by a schema, and remembers what short ones gave: lists read the same texts again and again. Callers
 * share the values.
 */
export class ParsedTexts<T> {
  readonly #known = new Map<string, T>();
  readonly #column: string;
  readonly #schema: z.ZodType<T>;

  constructor(column: string, schema: z.ZodType<T>) {
    this.#column = column;
    this.#schema = schema;
  }

  of(text: string): T {
    const known = this.#known.get(text);
    if (known !== undefined) return known;
    const value = parsed(this.#column, JSON.parse(text), this.#schema);
    if (text.length > MAX_TEXT_CHARS) return value;
    if (this.#known.size >= MAX_TEXTS) this.#known.clear();
    this.#known.set(text, value);
    return value;
  }

  ofMaybe(text: string | null | undefined): T | undefined {
    return text === null || text === undefined ? undefined : this.of(text);
  }
}

interface Words<T> {
  readonly options: readonly T[];
}

/** Returns the value of a column that holds one of a set of words. */
export function word<C extends string, T>(row: Readonly<Record<C, string>>, column: C, words: Words<T>): T {
  return wordIn(column, row[column], words);
}

export function maybeWord<C extends string, T>(
  row: Readonly<Partial<Record<C, string | null>>>,
  column: C,
  words: Words<T>,
): T | undefined {
  const text = row[column] ?? null;
  return text === null ? undefined : wordIn(column, text, words);
}

function wordIn<T>(column: string, text: string, { options }: Words<T>): T {
  const found = options.find((option) => option === text);
  if (found !== undefined) return found;
  throw new InternalError("bad-row", `column ${column} has an unexpected value: ${text.slice(0, 64)}`);
}

function parsed<T>(column: string, value: unknown, schema: z.ZodType<T>): T {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  throw new InternalError("bad-row", `column ${column} has an unexpected value: ${result.error.message}`);
}

/** Returns a text without U+0000, which PostgreSQL does not store. */
export function storable(text: string): string {
  return text.replaceAll("\0", "\ufffd");
}
