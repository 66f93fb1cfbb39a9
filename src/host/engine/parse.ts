import { z } from "zod";
import { InputError } from "../../errors.ts";
import { unwell } from "./failure.ts";

/** Labels and options: the engine says null for none. */
export const TextMap = z
  .record(z.string(), z.string())
  .nullish()
  .transform((map) => map ?? {});

/**
 * Reads an answer of the engine; what is not asked for is ignored.
 * @throws {HostError} `engine-unwell` that names the field, never its value.
 */
export function parsed<T>(schema: z.ZodType<T>, body: string, what: string): T {
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch {
    throw unwell(`${what} is not JSON`);
  }
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw unwell(`${what} is not as expected at ${issue?.path.join(".") ?? ""}`);
}

/** The `filters` of a list: those that carry all the labels. */
export function labelled(labels: readonly string[]): Readonly<Record<string, string>> {
  return labels.length === 0 ? {} : { filters: JSON.stringify({ label: labels }) };
}

/**
 * A name as a piece of a request's path; slashes, colons and at signs of image references stay.
 * @throws {InputError} `invalid-name` for what could be another path.
 */
export function inPath(name: string): string {
  const segments = name.split("/");
  if (segments.some((segment) => segment === "" || segment === "." || segment === "..")) {
    throw new InputError("invalid-name", "a name for the container engine has an empty part, or one that is dots only");
  }
  return segments.map((segment) => encodeURIComponent(segment).replaceAll("%3A", ":").replaceAll("%40", "@")).join("/");
}
