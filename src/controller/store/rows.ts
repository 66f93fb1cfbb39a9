import type { SQLOutputValue } from "node:sqlite";
import type { z } from "zod";
import { InternalError } from "../../errors.ts";

/** A row in SQLite's form. */
export type Row = Record<string, SQLOutputValue>;

/** Returns a text column. @throws {InternalError} `bad-row` for another type, as all readers here */
export function text(row: Row, column: string): string {
  const value = row[column];
  if (typeof value !== "string") throw badColumn(column);
  return value;
}

export function maybeText(row: Row, column: string): string | undefined {
  return row[column] === null ? undefined : text(row, column);
}

export function number(row: Row, column: string): number {
  const value = row[column];
  if (typeof value !== "number") throw badColumn(column);
  return value;
}

export function maybeNumber(row: Row, column: string): number | undefined {
  return row[column] === null ? undefined : number(row, column);
}

/** Returns a JSON column parsed by a schema. */
export function json<T>(row: Row, column: string, schema: z.ZodType<T>): T {
  const parsed = schema.safeParse(JSON.parse(text(row, column)));
  if (!parsed.success) throw new InternalError("bad-row", `column ${column}: ${parsed.error.message}`);
  return parsed.data;
}

export function maybeJson<T>(row: Row, column: string, schema: z.ZodType<T>): T | undefined {
  return row[column] === null ? undefined : json(row, column, schema);
}

/** Returns a column with one of a set of words. */
export function word<T>(row: Row, column: string, schema: z.ZodType<T>): T {
  const parsed = schema.safeParse(row[column]);
  if (!parsed.success) throw badColumn(column);
  return parsed.data;
}

function badColumn(column: string): InternalError {
  return new InternalError("bad-row", `column ${column} has an unexpected value`);
}
