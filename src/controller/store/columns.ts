import type { z } from "zod";
import { InternalError } from "../../errors.ts";

/** Returns the JSON of a text column parsed by a schema. @throws {InternalError} `bad-row` if it does not match, as all readers here */
export function json<C extends string, T>(row: Readonly<Record<C, string>>, column: C, schema: z.ZodType<T>): T {
  return parsed(column, JSON.parse(row[column]), schema);
}

export function maybeJson<C extends string, T>(
  row: Readonly<Record<C, string | null>>,
  column: C,
  schema: z.ZodType<T>,
): T | undefined {
  const text = row[column];
  return text === null ? undefined : parsed(column, JSON.parse(text), schema);
}

/** Returns the value of a column that holds one of a set of words. */
export function word<C extends string, T>(row: Readonly<Record<C, string>>, column: C, schema: z.ZodType<T>): T {
  return parsed(column, row[column], schema);
}

export function maybeWord<C extends string, T>(
  row: Readonly<Record<C, string | null>>,
  column: C,
  schema: z.ZodType<T>,
): T | undefined {
  return row[column] === null ? undefined : parsed(column, row[column], schema);
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
