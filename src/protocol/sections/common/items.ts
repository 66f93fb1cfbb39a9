import type { z } from "zod";
import { KNOWN_FEATURES } from "../../values/features.ts";
import type { JsonObject } from "../../values/values.ts";
import { isWithdrawn } from "./fields.ts";
import { isPresent, rawItems, toNumber, type ItemSection, type RawItem } from "./forms.ts";
import { issueText } from "../../values/issue-text.ts";
import { configIssue, type ConfigCode, type ConfigIssue } from "./issue.ts";

/** A section after validation. `rejected` items are not applied; `notices` report values that are not applied as written. */
export interface Normalised<Item> {
  /** Whether the section is enabled. */
  readonly enabled: boolean;
  /** Sorts by `index`, then id. */
  readonly items: readonly Item[];
  readonly rejected: readonly ConfigIssue[];
  readonly notices: readonly ConfigIssue[];
}

/** An item after validation; `item` is undefined if it was rejected. */
export interface Reading<Item> {
  readonly item?: Item;
  readonly rejected: readonly ConfigIssue[];
  readonly notices: readonly ConfigIssue[];
}

/**
 * Normalizes a section of either form, item by item. `read` validates an item by itself; `claim` takes its exclusive resources and
 * returns the issue if an earlier item has one.
 */
export function normaliseItems<Item>(
  name: ItemSection,
  raw: unknown,
  read: (raw: RawItem, isSectionOn: boolean) => Reading<Item>,
  claim: (item: Item, raw: RawItem) => ConfigIssue | undefined,
): Normalised<Item> {
  const section = rawItems(name, raw);
  const items: Item[] = [];
  const rejected = [...section.rejected];
  const notices = [...section.notices];
  for (const found of section.items) {
    const reading = read(found, section.enabled);
    rejected.push(...reading.rejected);
    if (reading.item === undefined) continue;
    const collision = claim(reading.item, found);
    if (collision !== undefined) {
      rejected.push(collision);
      continue;
    }
    items.push(reading.item);
    notices.push(...reading.notices);
  }
  return { enabled: section.enabled, items, rejected, notices };
}

/** Returns the notices of enabled items, which are applied otherwise than written. */
export function relevantNotices({
  items,
  notices,
}: Normalised<{ readonly id: string; readonly enabled: boolean }>): ConfigIssue[] {
  const off = new Set(items.filter(({ enabled }) => !enabled).map(({ id }) => id));
  return notices.filter(({ id }) => !off.has(id));
}

/**
 * Returns the fields that are neither null nor an empty text, each as `convert` returns it; undefined drops it. Returns the very
 * object if nothing changes, since most of thousands of entries need no change.
 */
export function convertFields(fields: JsonObject, convert: (name: string, value: unknown) => unknown): JsonObject {
  let converted: Record<string, unknown> | undefined;
  for (const name of Object.keys(fields)) {
    const given = fields[name];
    const value = isPresent(given) && given !== "" ? convert(name, given) : undefined;
    if (value === given && given !== undefined) continue;
    converted ??= { ...fields };
    if (value === undefined) delete converted[name];
    else converted[name] = value;
  }
  return converted ?? fields;
}

/** Returns a function that parses text as a number in the fields `numeric`, and returns any other value unchanged. */
export function numberIn(numeric: ReadonlySet<string>): (name: string, value: unknown) => unknown {
  return (name, value) => (numeric.has(name) ? (toNumber(value) ?? value) : value);
}

/**
 * Makes stored fields strict: an empty text or null becomes an absent field, a number written as text becomes a number, and an invalid
 * description is dropped. Unknown fields are omitted.
 */
export function tidyFields(fields: JsonObject, known: readonly string[], numeric: ReadonlySet<string>): JsonObject {
  const tidy: Record<string, unknown> = {};
  for (const key of known) {
    const value = fields[key];
    if (!isPresent(value) || value === "") continue;
    tidy[key] = numeric.has(key) ? (toNumber(value) ?? value) : value;
  }
  if (typeof tidy["description"] === "string") tidy["description"] = tidy["description"].slice(0, 4096);
  else delete tidy["description"];
  delete tidy["index"];
  delete tidy["id"];
  return tidy;
}

/**
 * Validates the fields of one item; returns its value, or every issue. `codes` has the code of fields whose issue is not a wrong
 * type.
 */
export function judgeFields<T>(
  raw: RawItem,
  schema: z.ZodType<T>,
  tidy: JsonObject,
  codes: Readonly<Record<string, ConfigCode>>,
): { readonly fields?: T; readonly rejected: readonly ConfigIssue[] } {
  const parsed = schema.safeParse(tidy);
  const missing = missingFeatures(raw);
  if (parsed.success) return missing.length === 0 ? { fields: parsed.data, rejected: missing } : { rejected: missing };
  const issues = new Map<string, ConfigIssue>();
  for (const found of parsed.error.issues) {
    const { path, code } = found;
    const [field = ""] = path.map(String);
    const issue = configIssue(codeOf(field, tidy, code, codes), raw, path.map(String).join("."), issueText(found));
    issues.set(issue.message, issue);
  }
  return { rejected: [...issues.values(), ...missing] };
}

function codeOf(
  field: string,
  tidy: JsonObject,
  kind: string,
  codes: Readonly<Record<string, ConfigCode>>,
): ConfigCode {
  if (tidy[field] === undefined && kind !== "custom") return "E_REQUIRED";
  if (field === "protocol" && isWithdrawn(tidy[field])) return "E_UNSUPPORTED_PROTOCOL";
  return codes[field] ?? "E_ENUM";
}

const NONE: readonly ConfigIssue[] = [];

function missingFeatures(raw: RawItem): readonly ConfigIssue[] {
  const { requires } = raw.fields;
  if (!Array.isArray(requires)) return NONE;
  const missing = requires.map(String).find((feature) => !KNOWN_FEATURES.has(feature));
  if (missing === undefined) return [];
  return [configIssue("E_DEPENDENCY", raw, "requires", `not supported: ${missing.slice(0, 64)}`)];
}
