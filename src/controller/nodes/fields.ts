import type { z } from "zod";
import { InputError } from "../../errors.ts";
import { FORBIDDEN_KEYS } from "../../lib/formats/strict-json.ts";
import { firstIssueText } from "../../protocol/values/issue-text.ts";
import { TagText } from "../../protocol/values/values.ts";
import type { ListedNode } from "./records.ts";

/** Limit of tags of one node or cluster. */
export const MAX_TAGS = 50;

/**
 * Returns the tags with one set, or removed if `value` is undefined.
 * @throws {InputError} `invalid-body` for an invalid tag or more than 50
 */
export function changeTag(
  tags: Readonly<Record<string, string>>,
  name: string,
  value: string | undefined,
): Readonly<Record<string, string>> {
  checkField("name", TagText, name);
  if (value === undefined) return Object.fromEntries(Object.entries(tags).filter(([tag]) => tag !== name));
  checkField("value", TagText, value);
  if (FORBIDDEN_KEYS.has(name)) {
    throw new InputError("invalid-body", `name: the key ${name} is not allowed`, { details: { field: "name" } });
  }
  if (!Object.hasOwn(tags, name) && Object.keys(tags).length >= MAX_TAGS) {
    throw new InputError("invalid-body", `name: cannot add a tag: the limit of ${MAX_TAGS} tags is reached`, {
      details: { field: "name" },
    });
  }
  return { ...tags, [name]: value };
}

/**
 * Checks tags that replace others. More than 50 that are stored may be kept, changed and removed.
 * @throws {InputError} `invalid-body` if one is added to more than 50
 */
export function checkTags(tags: Readonly<Record<string, string>>, before: Readonly<Record<string, string>>): void {
  const names = Object.keys(tags);
  if (names.length <= MAX_TAGS || names.every((name) => Object.hasOwn(before, name))) return;
  throw new InputError("invalid-body", `tags: must be at most ${MAX_TAGS}`, { details: { field: "tags" } });
}

/** Returns the tags that filters and conditions of policies see: a node's own, and those of its cluster with other names. */
export function effectiveTags({
  tags,
  inheritedTags,
}: Pick<ListedNode, "tags" | "inheritedTags">): Readonly<Record<string, string>> {
  return { ...inheritedTags, ...tags };
}

/** Returns the names of tags for an event, at most ten. */
export function namesOf(tags: Readonly<Record<string, string>>): string {
  const names = Object.keys(tags);
  if (names.length === 0) return "none";
  return `${names.slice(0, 10).join(", ")}${names.length > 10 ? ` and ${names.length - 10} more` : ""}`;
}

/** Checks a field against its schema. @throws {InputError} `invalid-body`, naming the field */
export function checkField(field: string, schema: z.ZodType, value: unknown): void {
  const parsed = schema.safeParse(value);
  if (parsed.success) return;
  const message = firstIssueText(parsed.error);
  throw new InputError("invalid-body", `${field}: ${message}`, { details: { field } });
}
