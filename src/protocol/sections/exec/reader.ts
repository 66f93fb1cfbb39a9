import type { z } from "zod";
import type { JsonObject } from "../../values/values.ts";
import { partFields, type PartName } from "./fields.ts";
import { isObject, isPresent, toNumber, type RawItem } from "../common/forms.ts";
import { configIssue, type ConfigCode } from "../common/issue.ts";
import { SectionReader, type Place } from "../common/section-reader.ts";

/** A part of a container's extended configuration: under which key it was found, and what it is. */
export interface RawPart {
  readonly key: string;
  readonly value: unknown;
}

const NAMES: ReadonlyMap<string, PartName> = new Map(
  (Object.keys(partFields) as PartName[]).map((name) => [name.toLowerCase(), name]),
);

/** The name of a part, however a client capitalises it: `VRF`, `healthcheck`. */
export const partName = (key: string): PartName | undefined => NAMES.get(key.toLowerCase());

/** The parts of a record, which stand beside its fields or below `config`; of two the one beside them, and as it is spelt here, counts. */
export function partsOf(record: JsonObject): ReadonlyMap<PartName, RawPart> {
  const parts = new Map<PartName, RawPart>();
  const add = (fields: JsonObject, prefix: string): void => {
    const keys = Object.keys(fields).sort((a, b) => Number(a === partName(a)) - Number(b === partName(b)));
    for (const key of keys) {
      const name = partName(key);
      if (name !== undefined) parts.set(name, { key: prefix + key, value: fields[key] });
    }
  };
  for (const [key, below] of Object.entries(record)) {
    if (key.toLowerCase() === "config" && isObject(below)) add(below, `${key}.`);
  }
  add(record, "");
  return parts;
}

/** Whether a part says nothing: absent, null, an empty text, an empty object or an empty list. */
export function isUnset(value: unknown): boolean {
  if (!isPresent(value) || value === "") return true;
  return typeof value === "object" && value !== null && Object.keys(value).length === 0;
}

/** What of fields is put right before they are judged. */
export interface Tidying {
  readonly numeric?: ReadonlySet<string>;
  readonly lowerCase?: ReadonlySet<string>;
}

/** Gathers what is said of the section `exec` while it is read. */
export class ExecReader extends SectionReader {
  /** Judges fields after `tidied`. A field of `soft` that is wrong is left out; any other takes the item with it. */
  judge<T>(
    at: RawItem,
    schema: z.ZodType<T>,
    tidy: Record<string, unknown>,
    soft: ReadonlySet<string> = NONE,
  ): T | undefined {
    return this.judgeTidy(at, schema, tidy, soft, CODES);
  }

  /** Notes what another item has already and the API therefore refuses; the rest of the container goes on. */
  collide(code: ConfigCode, at: Place, field: string, text: string, other: string): void {
    this.notices.push({ ...configIssue(code, at, field, `${text}; ignored`), other });
    this.conflicts.push({ ...configIssue(code, at, field, text), other });
  }

  /** A part that is an object; undefined when nothing is configured, `wrong` when it is something else. */
  object(at: RawItem, parts: ReadonlyMap<PartName, RawPart>, name: PartName): RawItem | "wrong" | undefined {
    const part = parts.get(name);
    if (part === undefined || isUnset(part.value)) return undefined;
    if (isObject(part.value)) return { ...at, path: `${at.path}.${part.key}`, fields: part.value };
    this.reject("E_ENUM", at, part.key, "must be an object");
    return "wrong";
  }

  /** The items of a part that is a list, each with the id of its container; `isWhole` tells whether that is all of them. */
  items(
    at: RawItem,
    part: RawPart | undefined,
    most: number,
  ): { readonly items: readonly RawItem[]; readonly isWhole: boolean } {
    if (part === undefined || isUnset(part.value)) return { items: [], isWhole: true };
    const before = this.rejected.length;
    const { entries } = this.entries(at, { [part.key]: part.value }, part.key, most);
    // Whatever is wrong with a part is said of its container.
    const said = this.rejected
      .slice(before)
      .map((issue) => (at.id === "" ? issue : Object.assign({}, issue, { id: at.id })));
    this.rejected.splice(before, said.length, ...said);
    const items = entries.map(({ path, index, fields }): RawItem => ({ path, id: at.id, index, fields }));
    return { items, isWhole: this.rejected.length === before };
  }
}

/** Fields with null and empty texts left out, numbers that are written as text made numbers, and names in lower case. */
export function tidied(fields: JsonObject, { numeric = NONE, lowerCase = NONE }: Tidying): Record<string, unknown> {
  const tidy: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(fields)) {
    if (!isPresent(value) || value === "") continue;
    if (numeric.has(name)) tidy[name] = numberOf(value);
    else tidy[name] = lowerCase.has(name) && typeof value === "string" ? value.trim().toLowerCase() : value;
  }
  return tidy;
}

/** Orders by text, the same on every machine. */
export function sortedBy<T>(items: readonly T[], key: (item: T) => string): T[] {
  return items
    .map((item) => [key(item), item] as const)
    .sort(([a], [b]) => (a < b ? -1 : Number(a > b)))
    .map(([, item]) => item);
}

function numberOf(value: unknown): unknown {
  const isNegative = typeof value === "string" && value.startsWith("-");
  const size = toNumber(isNegative ? value.slice(1) : value);
  if (size === undefined) return value;
  return isNegative ? -size : size;
}

const NONE: ReadonlySet<string> = new Set();
const CODES: Readonly<Record<string, ConfigCode>> = {
  name: "E_NAME_FORMAT",
  hostname: "E_NAME_FORMAT",
  image: "E_NAME_FORMAT",
  user: "E_NAME_FORMAT",
  source: "E_NAME_FORMAT",
  location: "E_NAME_FORMAT",
  iface: "E_NAME_FORMAT",
  network: "E_NAME_FORMAT",
  dest: "E_NAME_FORMAT",
  dns: "E_CIDR_INVALID",
  ip: "E_CIDR_INVALID",
  hostPort: "E_PORT_RANGE",
  containerPort: "E_PORT_RANGE",
  ...Object.fromEntries(
    (
      "stopTime command schedule interval timeout startPeriod retries cpuMax memMax memHigh ioRbps ioWbps ioRiops ioWiops " +
      "soft hard maxFileSize numFiles description value uid"
    )
      .split(" ")
      .map((name) => [name, "E_RANGE" as const]),
  ),
};
