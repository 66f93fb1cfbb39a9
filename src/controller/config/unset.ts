import { z } from "zod";
import { isObject } from "../../protocol/sections/common/forms.ts";
import type { JsonObject } from "../../protocol/values/values.ts";

/**
 * Returns a schema that takes null and the empty text for a field that is not set, as clients write it and nodes read it. The body stays
 * as it was written; `strip` returns it without these fields.
 */
export function takingUnset(
  schema: z.ZodType,
  strip: (body: unknown) => unknown = (body) => withoutUnset(body),
): z.ZodType<JsonObject> {
  return z.unknown().transform((body, context): JsonObject => {
    const parsed = schema.safeParse(strip(body));
    if (parsed.success && isObject(body)) return body;
    for (const issue of parsed.error?.issues ?? []) context.addIssue({ ...issue });
    return z.NEVER;
  });
}

/** Removes fields that are null or empty at every depth; an item of the V2 form must be an object. */
export function withoutUnset(value: unknown, isItems = false): unknown {
  if (Array.isArray(value)) return value.map((item: unknown) => withoutUnset(item));
  if (!isObject(value)) return value;
  const set = Object.entries(value).filter(([, field]) => isItems || (field !== null && field !== ""));
  return Object.fromEntries(set.map(([name, field]) => [name, withoutUnset(field, name === "items")]));
}
