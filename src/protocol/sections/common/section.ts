import { z } from "zod";
import type { JsonObject } from "../../values/values.ts";
import { Enabled, says } from "./fields.ts";
import type { ConfigIssue } from "./issue.ts";
import { isObject, MAX_ITEMS, type ItemSection } from "./forms.ts";

/** The id of a stored item. */
export const ItemId = z.uuid(says("must be a UUID"));

/** The id that a caller gives an item; an empty one counts as absent. */
export const GivenId = z.union([ItemId, z.literal("")], says("must be a UUID")).optional();

/**
 * The schema of a whole section in either form, as strict as the API is; unknown fields are kept. `collisions` lists the items that
 * a later one cannot stand beside.
 */
export function sectionSchema(
  name: ItemSection,
  item: z.ZodType<JsonObject>,
  collisions: (section: JsonObject) => readonly ConfigIssue[],
): z.ZodType<JsonObject> {
  return z
    .looseObject(
      {
        enabled: Enabled,
        version: z.literal(2, says("must be 2, or absent in the legacy form")).optional(),
        items: z
          .record(ItemId, item, {
            error: ({ code }) => (code === "invalid_key" ? "the id of an item must be a UUID" : "must be an object"),
          })
          .optional(),
        [name]: z
          .array(item, says("must be an array"))
          .max(MAX_ITEMS, says(`must be at most ${MAX_ITEMS}`))
          .optional(),
      },
      says("must be an object"),
    )
    .superRefine((section: JsonObject, context) => {
      const add = (path: (string | number)[], message: string): void =>
        context.addIssue({ code: "custom", path, message });
      const { version, items, [name]: list } = section;
      if (items !== undefined && version !== 2) add(["version"], "must be 2 beside items");
      if (version === 2 && list !== undefined) add([name], "has no place beside version 2");
      if (version === 2 && items === undefined) add(["items"], "is required beside version 2");
      if (isObject(items)) checkIds(items, add);
      if (Array.isArray(list)) checkListedIds(name, list, add);
      for (const { path, message } of collisions(section)) {
        add(path.split(".").slice(1), message.slice(path.length + ": ".length));
      }
    });
}

function checkIds(items: JsonObject, add: (path: string[], message: string) => void): void {
  const entries = Object.entries(items);
  if (entries.length > MAX_ITEMS) add(["items"], `must be at most ${MAX_ITEMS}`);
  for (const [key, item] of entries) {
    const id = isObject(item) ? item["id"] : undefined;
    if (id !== undefined && id !== "" && id !== key)
      add(["items", key, "id"], "must be the id it stands under, or absent");
  }
}

/** UUIDs are case-insensitive (RFC 9562, section 4). */
function checkListedIds(
  name: string,
  list: readonly unknown[],
  add: (path: (string | number)[], text: string) => void,
) {
  const seen = new Map<string, number>();
  list.forEach((item: unknown, at) => {
    const id = isObject(item) && typeof item["id"] === "string" ? item["id"].toLowerCase() : "";
    if (id === "") return;
    const first = seen.get(id);
    if (first === undefined) seen.set(id, at);
    else add([name, at, "id"], `is the id of ${name}.${first} already`);
  });
}
