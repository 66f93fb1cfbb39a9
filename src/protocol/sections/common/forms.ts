import type { JsonObject } from "../../values/values.ts";
import { configIssue, type ConfigIssue } from "./issue.ts";

/** The sections that hold items, in a legacy list or, as V2, by id. */
export type ItemSection = "connectors" | "services";

export function isItemSection(name: string): name is ItemSection {
  return name === "connectors" || name === "services";
}

/** Most items a section may hold. */
export const MAX_ITEMS = 10_000;
/** Longest id of a stored item. */
export const MAX_ID_LENGTH = 128;

/** An item as it was found, before its fields are judged. */
export interface RawItem {
  readonly id: string;
  readonly path: string;
  /** Its place in the order. */
  readonly index: number;
  readonly fields: JsonObject;
}

/** A section taken apart: its items in order. */
export interface RawSection {
  readonly enabled: boolean;
  readonly items: readonly RawItem[];
  readonly rejected: readonly ConfigIssue[];
  readonly notices: readonly ConfigIssue[];
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Reports whether a stored section is in V2 form. */
export function isV2(section: JsonObject): boolean {
  return isPresent(section["items"]) || toNumber(section["version"]) === 2;
}

/** The items of a section in V2 form by id, as they are stored. */
export function v2Items(section: JsonObject): JsonObject {
  return isObject(section["items"]) ? section["items"] : {};
}

/**
 * Converts a legacy section to V2 form: every item gets a new id, and its place as `index`. A V2 section is returned unchanged. There is no
 * conversion back.
 */
export function upgradeToV2(name: ItemSection, section: JsonObject, newId: () => string): JsonObject {
  if (isV2(section)) return section;
  const { [name]: list, ...others } = section;
  const entries = (Array.isArray(list) ? list : []).map((item: unknown, index) => {
    const id = newId();
    return [id, isObject(item) ? { ...item, id, index } : item] as const;
  });
  return { ...others, version: 2, items: Object.fromEntries(entries) };
}

/** Takes a section of either form apart; what is no item at all is rejected here. */
export function rawItems(name: ItemSection, raw: unknown): RawSection {
  if (!isPresent(raw)) return { enabled: true, items: [], rejected: [], notices: [] };
  const here = { path: name, id: "" };
  if (!isObject(raw)) return nothing([configIssue("E_ENUM", here, "", "must be an object")]);
  const rejected: ConfigIssue[] = [];
  const notices: ConfigIssue[] = [];
  const { [name]: list, items: map, enabled: isOn } = raw;
  const enabled = isPresent(isOn) ? isOn === true : true;
  if (isPresent(isOn) && typeof isOn !== "boolean") {
    rejected.push(configIssue("E_ENUM", here, "enabled", "must be true or false; taken as false"));
  }
  let found: RawItem[] = [];
  if (isV2(raw)) {
    if (Array.isArray(list) && list.length > 0) {
      notices.push(configIssue("E_V1_ON_V2", here, name, "a legacy list beside V2 items is ignored"));
    }
    if (isObject(map)) found = ofMap(name, map, rejected);
    else if (isPresent(map)) rejected.push(configIssue("E_ENUM", here, "items", "must be an object"));
  } else if (Array.isArray(list)) {
    found = ofList(name, list, rejected);
  } else if (isPresent(list)) {
    rejected.push(configIssue("E_ENUM", here, name, "must be an array"));
  }
  found.sort((a, b) => a.index - b.index || (a.id < b.id ? -1 : 1));
  if (found.length > MAX_ITEMS) {
    const text = `at most ${MAX_ITEMS} items; ${found.length - MAX_ITEMS} are left out`;
    rejected.push(configIssue("E_RANGE", here, "", text));
  }
  return { enabled, items: found.slice(0, MAX_ITEMS), rejected, notices };
}

const nothing = (rejected: readonly ConfigIssue[]): RawSection => ({
  enabled: false,
  items: [],
  rejected,
  notices: [],
});

function ofMap(name: ItemSection, map: JsonObject, rejected: ConfigIssue[]): RawItem[] {
  return Object.entries(map).flatMap(([id, item], position) => {
    const path = `${name}.items.${id.slice(0, MAX_ID_LENGTH)}`;
    const where = { path, id: id.slice(0, MAX_ID_LENGTH) };
    if (id === "" || id.length > MAX_ID_LENGTH) {
      rejected.push(configIssue("E_RANGE", where, "", `an id has 1..${MAX_ID_LENGTH} characters`));
      return [];
    }
    if (!isObject(item)) {
      rejected.push(configIssue("E_ENUM", where, "", "must be an object"));
      return [];
    }
    return [{ ...where, index: toIndex(item["index"]) ?? position, fields: item }];
  });
}

/** A legacy list is in order as it stands; an item without an id goes by its position. */
function ofList(name: ItemSection, list: readonly unknown[], rejected: ConfigIssue[]): RawItem[] {
  const seen = new Set<string>();
  return list.flatMap((item, index) => {
    const path = `${name}.${name}.${index}`;
    if (!isObject(item)) {
      rejected.push(configIssue("E_ENUM", { path, id: String(index) }, "", "must be an object"));
      return [];
    }
    const given = item["id"];
    const id = typeof given === "string" && given !== "" ? given.slice(0, MAX_ID_LENGTH) : String(index);
    if (seen.has(id)) {
      rejected.push(configIssue("E_NAME_DUPLICATE", { path, id }, "id", "another item has it"));
      return [];
    }
    seen.add(id);
    return [{ id, path, index, fields: item }];
  });
}

/** Reports whether a value is present; null counts as absent. */
export const isPresent = (value: unknown): boolean => value !== undefined && value !== null;

/** A number, also one that is written as text. */
export function toNumber(value: unknown): number | undefined {
  if (typeof value === "number") return value;
  return typeof value === "string" && /^\d{1,15}(?:\.\d{1,9})?$/.test(value) ? Number(value) : undefined;
}

function toIndex(value: unknown): number | undefined {
  const index = toNumber(value);
  return index !== undefined && Number.isSafeInteger(index) && index >= 0 ? index : undefined;
}
