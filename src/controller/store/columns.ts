import type { z } from "zod";
import { InternalError } from "../../errors.ts";

/** Returns the JSON of a text column parsed by a schema. @throws {InternalError} `bad-row` if it does not match, as all readers here */
export function json<T>(text: string, schema: z.ZodType<T>): T {
  const parsed = schema.safeParse(JSON.parse(text));
  if (!parsed.success) throw new InternalError("bad-row", `a column has unexpected JSON: ${parsed.error.message}`);
  return parsed.data;
}

export function maybeJson<T>(text: string | null, schema: z.ZodType<T>): T | undefined {
  return text === null ? undefined : json(text, schema);
}

/** Returns the value of a column that holds one of a set of words. */
export function word<T>(value: string, schema: z.ZodType<T>): T {
  const parsed = schema.safeParse(value);
  if (!parsed.success) throw new InternalError("bad-row", `a column has the unexpected value ${JSON.stringify(value)}`);
  return parsed.data;
}

/** Returns a text without U+0000, which PostgreSQL does not store. */
export function storable(text: string): string {
  return text.replaceAll("\0", "\ufffd");
}
