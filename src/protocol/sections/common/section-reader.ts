import type { z } from "zod";
import type { JsonObject } from "../../values/values.ts";
import { isObject, isPresent, type RawItem } from "./forms.ts";
import { configIssue, type ConfigCode, type ConfigIssue } from "./issue.ts";
import { judgeFields } from "./items.ts";
import { defined } from "../../../lib/defined.ts";

/** Where something stands in the section. */
export type Place = Pick<RawItem, "path" | "id">;

/** Gathers what is said of a section while it is read. */
export class SectionReader {
  /** What is left out. */
  readonly rejected: ConfigIssue[] = [];
  /** What is served otherwise than it is written. */
  readonly notices: ConfigIssue[] = [];
  /** What the API refuses although each field by itself is right. */
  readonly conflicts: ConfigIssue[] = [];

  note(code: ConfigCode, at: Place, field: string, text: string): void {
    this.notices.push(configIssue(code, at, field, text));
  }

  /** Notes what goes on in a stored section, with what comes of it, and is refused in a new one. */
  tolerate(code: ConfigCode, at: Place, field: string, text: string, outcome: string): void {
    this.notices.push(configIssue(code, at, field, `${text}; ${outcome}`));
    this.conflicts.push(configIssue(code, at, field, text));
  }

  /** Rejects what is wrong by itself, which a schema tells the API. */
  reject(code: ConfigCode, at: Place, field: string, text: string): void {
    this.rejected.push(configIssue(code, at, field, text));
  }

  /** Rejects what is right by itself and cannot stand beside the rest; `other` is the item it collides with. */
  conflict(code: ConfigCode, at: Place, field: string, text: string, other?: string): void {
    const issue = { ...configIssue(code, at, field, text), ...defined({ other }) };
    this.rejected.push(issue);
    this.conflicts.push(issue);
  }

  /** Rejects what names something that is not there; a cluster may bring it, so the API takes it. */
  unknown(at: Place, field: string, text: string): void {
    this.reject("E_REF_UNKNOWN", at, field, text);
  }

  /** The entries of a list that are objects, in their order; `isWhole` tells whether that is all of them. */
  entries(at: Place, fields: JsonObject, name: string, most: number): { entries: RawItem[]; isWhole: boolean } {
    const list = fields[name];
    if (!isPresent(list)) return { entries: [], isWhole: true };
    if (!Array.isArray(list)) {
      this.reject("E_ENUM", at, name, "must be an array");
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
      else this.reject("E_ENUM", { path, id: String(index) }, "", "must be an object");
    }
    return { entries, isWhole: list.length <= most };
  }

  /** Judges fields that were put right before. A field of `soft` that is wrong is left out; any other takes the entry with it. */
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

/** Of a list of texts only the wrong ones go. */
function drop(tidy: Record<string, unknown>, name: string, rejected: readonly ConfigIssue[], at: RawItem): void {
  const { [name]: value } = tidy;
  const prefix = `${at.path}.${name}.`;
  const bad = new Set(rejected.flatMap(({ path }) => (path.startsWith(prefix) ? [path.slice(prefix.length)] : [])));
  const kept = Array.isArray(value) ? value.filter((_, index) => !bad.has(String(index))) : [];
  if (bad.size > 0 && kept.length > 0) tidy[name] = kept;
  else delete tidy[name];
}

const NAMES = ["nic", "name", "uid"] as const;

/** What people call an entry: its name, or its place. */
function idOf(fields: JsonObject, index: number): string {
  for (const name of NAMES) {
    const value = fields[name];
    if (typeof value === "string" && value !== "") return value.slice(0, 128);
  }
  return String(index);
}
