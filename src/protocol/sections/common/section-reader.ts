import type { z } from "zod";
import type { JsonObject } from "../../values/values.ts";
import { isObject, isPresent, type RawItem } from "./forms.ts";
import { configIssue, type ConfigCode, type ConfigIssue } from "./issue.ts";
import { judgeFields } from "./items.ts";
import { defined } from "../../../lib/defined.ts";

export type Place = Pick<RawItem, "path" | "id">;

/** A valid item and its place. */
export interface Found<T> {
  readonly item: T;
  readonly at: RawItem;
}

/** Collects the issues of a section while it is read. */
export class SectionReader {
  /** Items and fields that are not applied. */
  readonly rejected: ConfigIssue[] = [];
  /** Items and fields that are applied otherwise than written. */
  readonly notices: ConfigIssue[] = [];
  /** Combinations that the API rejects although each field is valid by itself. */
  readonly conflicts: ConfigIssue[] = [];
  readonly #unreadable = new Set<string>();

  note(code: ConfigCode, at: Place, field: string, text: string): void {
    this.notices.push(configIssue(code, at, field, text));
  }

  /** Reports a value that a stored section may keep, with the outcome, and that the API rejects in a new one. */
  tolerate(code: ConfigCode, at: Place, field: string, text: string, outcome: string): void {
    this.notices.push(configIssue(code, at, field, `${text}; ${outcome}`));
    this.conflicts.push(configIssue(code, at, field, text));
  }

  /** Rejects a value that is invalid by itself; the API finds it by the schema. */
  reject(code: ConfigCode, at: Place, field: string, text: string): void {
    this.rejected.push(configIssue(code, at, field, text));
  }

  /** Rejects a valid value that contradicts another; `other` is the id of the item it collides with. */
  conflict(code: ConfigCode, at: Place, field: string, text: string, other?: string): void {
    const issue = { ...configIssue(code, at, field, text), ...defined({ other }) };
    this.rejected.push(issue);
    this.conflicts.push(issue);
  }

  /**
   * Rejects a reference to something that does not exist. The API accepts it, since a cluster may define the target. `list` is the path of
   * the list that would define it; if that list is unreadable, which is reported already, its entries are unknown.
   */
  unknown(at: Place, field: string, text: string, list: string): void {
    if (!this.isUnreadable(list)) this.reject("E_REF_UNKNOWN", at, field, text);
  }

  /** Reports whether the value at the path of a list is no array. */
  isUnreadable(path: string): boolean {
    return this.#unreadable.has(path);
  }

  /** Returns the entries of a list that are objects, in order; `isWhole` tells whether the list is no longer than `most`. */
  entries(
    at: Place,
    fields: JsonObject,
    name: string,
    most: number,
    idOf: (fields: JsonObject, index: number) => string = nameOf,
  ): { readonly entries: RawItem[]; readonly isWhole: boolean } {
    const list = fields[name];
    if (!isPresent(list)) return { entries: [], isWhole: true };
    if (!Array.isArray(list)) {
      this.reject("E_ENUM", at, name, "must be an array");
      this.#unreadable.add(`${at.path}.${name}`);
      return { entries: [], isWhole: false };
    }
    if (list.length > most) {
      this.reject("E_RANGE", at, name, `at most ${most} entries; ${list.length - most} are left out`);
    }
    const entries: RawItem[] = [];
    const count = Math.min(list.length, most);
    for (let index = 0; index < count; index += 1) {
      const value: unknown = list[index];
      const path = `${at.path}.${name}.${index}`;
      if (isObject(value)) entries.push({ path, id: idOf(value, index), index, fields: value });
      else this.reject("E_ENUM", { path, id: idOf({}, index) || String(index) }, "", "must be an object");
    }
    return { entries, isWhole: list.length <= most };
  }

  /** Validates converted fields. An invalid field of `soft` is dropped; any other invalid field rejects the entry. */
  protected judgeTidy<T>(
    at: RawItem,
    schema: z.ZodType<T>,
    tidy: Readonly<Record<string, unknown>>,
    soft: ReadonlySet<string>,
    codes: Readonly<Record<string, ConfigCode>>,
  ): T | undefined {
    for (let left = tidy; ;) {
      const { fields, rejected } = judgeFields(at, schema, left, codes);
      if (fields !== undefined) return fields;
      const names = rejected.map(({ path }) => path.slice(at.path.length + 1).split(".")[0] ?? "");
      this.rejected.push(...rejected);
      if (names.length === 0 || !names.every((name) => soft.has(name) && Object.hasOwn(left, name))) return undefined;
      left = { ...left };
      for (const name of names) drop(left, name, rejected, at);
    }
  }
}

/** Drops a field; of a list of texts only the invalid ones. */
function drop(tidy: Record<string, unknown>, name: string, rejected: readonly ConfigIssue[], at: RawItem): void {
  const { [name]: value } = tidy;
  const prefix = `${at.path}.${name}.`;
  const bad = new Set(rejected.flatMap(({ path }) => (path.startsWith(prefix) ? [path.slice(prefix.length)] : [])));
  const kept = Array.isArray(value) ? value.filter((_, index) => !bad.has(String(index))) : [];
  if (bad.size > 0 && kept.length > 0) tidy[name] = kept;
  else delete tidy[name];
}

const NAMES = ["nic", "name", "uid"] as const;

/** Returns the name of an entry, or its index if it has none. */
function nameOf(fields: JsonObject, index: number): string {
  for (const name of NAMES) {
    const value = fields[name];
    if (typeof value === "string" && value !== "") return value.slice(0, 128);
  }
  return String(index);
}
