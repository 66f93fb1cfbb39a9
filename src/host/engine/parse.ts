import { z } from "zod";
import { InputError } from "../../errors.ts";
import { unwell } from "./failure.ts";

/** Labels and options; the engine returns null for none. */
export const TextMap = z
  .record(z.string(), z.string())
  .nullish()
  .transform((map) => map ?? {});

/**
 * Parses a response of the engine; ignores unknown fields.
 * @throws {HostError} `engine-unwell` that names the field but never its value.
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

/** Returns the `filters` of a list that match objects with all the labels. */
export function labelled(labels: readonly string[]): Readonly<Record<string, string>> {
  return labels.length === 0 ? {} : { filters: JSON.stringify({ label: labels }) };
}

/**
 * Encodes a name for a request's path; keeps slashes, colons and at signs of image references.
 * @throws {InputError} `invalid-name` if it could be another path.
 */
export function inPath(name: string): string {
  const segments = name.split("/");
  if (segments.some((segment) => segment === "" || segment === "." || segment === "..")) {
    throw new InputError("invalid-name", "a name for the container engine has a part that is empty or only dots");
  }
  return segments.map((segment) => encodeURIComponent(segment).replaceAll("%3A", ":").replaceAll("%40", "@")).join("/");
}
