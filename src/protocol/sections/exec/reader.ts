import type { z } from "zod";
import type { JsonObject } from "../../values/values.ts";
import { partFields, type PartName } from "./fields.ts";
import { isObject, isPresent, toNumber, type RawItem } from "../common/forms.ts";
import { configIssue, type ConfigCode } from "../common/issue.ts";
import { convertFields } from "../common/items.ts";
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

/** Returns the parts of a record, beside its fields or below `config`. The one beside them wins, then the one spelt as here. */
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

/** Reports whether a part is absent, null, or an empty text, object or list. */
export function isUnset(value: unknown): boolean {
  if (!isPresent(value) || value === "") return true;
  return typeof value === "object" && value !== null && Object.keys(value).length === 0;
}

/** Fields to convert before validation. */
export interface Tidying {
  readonly numeric?: ReadonlySet<string>;
  readonly lowerCase?: ReadonlySet<string>;
}

/** Reads the section `exec`. */
export class ExecReader extends SectionReader {
  /** Validates fields after `tidied`. An invalid field of `soft` is dropped; any other invalid field rejects the item. */
  judge<T>(
    at: RawItem,
    schema: z.ZodType<T>,
    tidy: Record<string, unknown>,
    soft: ReadonlySet<string> = NONE,
  ): T | undefined {
    return this.judgeTidy(at, schema, tidy, soft, CODES);
  }

  /** Ignores a value that another item has already, which the API rejects; the rest of the container is applied. */
  collide(code: ConfigCode, at: Place, field: string, text: string, other: string): void {
    this.notices.push({ ...configIssue(code, at, field, `${text}; ignored`), other });
    this.conflicts.push({ ...configIssue(code, at, field, text), other });
  }

  /** Returns a part that is an object; undefined if it is not configured, `wrong` if it is no object. */
  object(at: RawItem, parts: ReadonlyMap<PartName, RawPart>, name: PartName): RawItem | "wrong" | undefined {
    const part = parts.get(name);
    if (part === undefined || isUnset(part.value)) return undefined;
    if (isObject(part.value)) return { ...at, path: `${at.path}.${part.key}`, fields: part.value };
    this.reject("E_ENUM", at, part.key, "must be an object");
    return "wrong";
  }

  /** Returns the items of a part that is a list, each with the id of its container; `isWhole` tells whether none was rejected. */
  items(
    at: RawItem,
    part: RawPart | undefined,
    most: number,
  ): { readonly items: readonly RawItem[]; readonly isWhole: boolean } {
    if (part === undefined || isUnset(part.value)) return { items: [], isWhole: true };
    const before = this.rejected.length;
    const { entries: items } = this.entries(at, { [part.key]: part.value }, part.key, most, () => at.id);
    return { items, isWhole: this.rejected.length === before };
  }
}

/** Returns the present fields, those of `numeric` as numbers and those of `lowerCase` in lower case. */
export function tidied(fields: JsonObject, { numeric = NONE, lowerCase = NONE }: Tidying): Record<string, unknown> {
  const convert = (name: string, value: unknown): unknown => {
    if (numeric.has(name)) return numberOf(value);
    return lowerCase.has(name) && typeof value === "string" ? value.trim().toLowerCase() : value;
  };
  return { ...convertFields(fields, convert) };
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
