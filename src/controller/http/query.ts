import { z } from "zod";
import { nearest } from "../../lib/text/nearest.ts";
import { Violations } from "./problem.ts";

/**
 * Collects query parameters: text if given once; an array if repeated or spelled `name[]` or `name[0]`. A list with parts may be spelled
 * `name[0][0]`.
 * @throws {Violations} naming each unknown parameter and the nearest known name, or a parameter with the character U+0000
 */
export function queryValues(
  search: URLSearchParams,
  shape: Readonly<Record<string, unknown>>,
): Record<string, string | string[]> {
  const values = new Map<string, string | string[]>();
  const unknown = new Set<string>();
  for (const [spelling, value] of search) {
    const [, base = "", first, second] = SPELLING.exec(spelling) ?? [];
    const isItem = first !== undefined && second === undefined && Object.hasOwn(shape, base);
    const key = isItem ? base : spelling;
    // Parts of a list of paths are left to the handler.
    if (!Object.hasOwn(shape, key)) {
      if (!Object.hasOwn(shape, `${base}[]`)) unknown.add(spelling);
      continue;
    }
    // Not every store can look for it.
    if (value.includes("\0")) throw new Violations([`${key}: must not have the character U+0000`]);
    const known = values.get(key);
    if (known === undefined) values.set(key, isItem ? [value] : value);
    else if (Array.isArray(known)) known.push(value);
    else values.set(key, [known, value]);
  }
  if (unknown.size > 0) {
    const named = [...unknown].slice(0, MAX_NAMED);
    throw new Violations(named.map((name) => unknownText(name, Object.keys(shape))));
  }
  return Object.fromEntries(values);
}

/** Limit of unknown parameters that are compared with the known names. */
const MAX_NAMED = 100;
const SPELLING = /^([\w-]+)(\[\d{0,4}\])?(\[\d{0,4}\])?$/;

function unknownText(spelling: string, known: readonly string[]): string {
  const names = known.map((name) => name.replace("[]", ""));
  const [typed = ""] = spelling.split("[", 1);
  const near = nearest(typed.toLowerCase(), names) ?? nearest(typed, names);
  const all = names.length === 0 ? "this path has none" : `known are ${names.join(", ")}`;
  const hint = near === undefined ? all : `did you mean '${near}'?`;
  return `query: unknown parameter '${spelling.slice(0, 64)}'; ${hint}`;
}

/** Parses a list in a query: comma-separated, repeated, or both. */
export function listOf<T extends z.ZodType>(item: T, most: number) {
  return z.preprocess((value) => {
    if (value === undefined) return undefined;
    const texts = Array.isArray(value) ? value : [value];
    return texts.flatMap((text) => String(text).split(",")).filter((text) => text !== "");
  }, z.array(item).max(most).optional());
}

/** Parses an integer in a query. */
export function numberIn(least: number, most: number) {
  return z.preprocess(
    (value) => (typeof value === "string" && /^-?\d{1,15}$/.test(value) ? Number(value) : value),
    z.int().min(least).max(most),
  );
}

/** A flag in a query: set by any value except empty, `0` and `false`. */
export const Flag = z
  .preprocess(
    (value) => (Array.isArray(value) ? value.some(isTruthy) : isTruthy(value)),
    z.boolean().meta({ description: "Any value except empty, `0` and `false`" }),
  )
  .optional();

const isTruthy = (value: unknown): boolean =>
  typeof value === "string" && value !== "" && value !== "0" && value !== "false";

const TAG = /^([A-Za-z0-9_-]{1,128}):([A-Za-z0-9_-]{1,128})$/;

/** Comma-separated `key:value` pairs, all of which must match. */
export const TagFilter = listOf(z.string().regex(TAG, "must be key:value, with letters, digits, '-' and '_'"), 64).meta(
  {
    description:
      "Comma-separated `key:value` pairs, all of which must match; a node has the tags of its cluster, too, its own first",
  },
);

/** Reports whether tags match every pair of a filter. */
export function hasTags(tags: Readonly<Record<string, string>>, filter: readonly string[] | undefined): boolean {
  return (filter ?? []).every((pair) => {
    const [, name = "", value] = TAG.exec(pair) ?? [];
    return Object.hasOwn(tags, name) && tags[name] === value;
  });
}

/** A time in Unix seconds, until the year 9999. */
export const UnixMoment = numberIn(0, 253_402_300_799);

/** Parses an ISO 8601 time to Unix seconds. */
export const Moment = z
  .string()
  .refine(
    (text) => z.iso.datetime({ offset: true }).safeParse(text).success || z.iso.date().safeParse(text).success,
    "must be an ISO 8601 date, or a date and time with Z or an offset",
  )
  .transform((text) => Date.parse(text) / 1000);
