import { z } from "zod";
import { issueText } from "../../values/issue-text.ts";
import type { JsonObject } from "../../values/values.ts";
import { isObject, isPresent, toNumber, type RawItem } from "../common/forms.ts";
import { GATEWAY_LIMITS, gatewayScalars } from "./fields.ts";
import { configIssue, type ConfigCode, type ConfigIssue } from "../common/issue.ts";
import { judgeFields } from "../common/items.ts";

/** Where an issue stands that is about the section itself. */
export const SECTION = { path: "gateway", id: "" };

/** An item that can be used, and where it stands. */
export interface Found<T> {
  readonly item: T;
  readonly at: RawItem;
}

const Scalars = z.object(gatewayScalars).partial();
type Scalars = z.infer<typeof Scalars>;

/** Reads the section field by field and gathers what is said of it. */
export class GatewayReader {
  readonly raw: JsonObject;
  readonly fields: Scalars;
  readonly rejected: ConfigIssue[] = [];
  readonly notices: ConfigIssue[] = [];
  readonly conflicts: ConfigIssue[] = [];
  readonly #bad = new Set<string>();

  constructor(raw: unknown) {
    if (isPresent(raw) && !isObject(raw)) this.reject("E_ENUM", "", "must be an object");
    this.raw = isObject(raw) ? raw : {};
    this.fields = this.#scalars();
  }

  reject(code: ConfigCode, field: string, text: string): void {
    this.rejected.push(configIssue(code, SECTION, field, text));
  }

  note(code: ConfigCode, field: string, text: string): void {
    this.notices.push(configIssue(code, SECTION, field, text));
  }

  /** Rejects what is right by itself and cannot stand beside the rest. */
  conflict(code: ConfigCode, at: Pick<RawItem, "path" | "id">, field: string, text: string): void {
    const issue = configIssue(code, at, field, text);
    this.conflicts.push(issue);
    this.rejected.push(issue);
  }

  noteItem(code: ConfigCode, at: RawItem, field: string, text: string): void {
    this.notices.push(configIssue(code, at, field, text));
  }

  /** Whether a field is there, be it right or wrong. */
  has(field: string): boolean {
    const value = this.raw[field];
    return isPresent(value) && value !== "";
  }

  isBad(field: string): boolean {
    return this.#bad.has(field);
  }

  /** The items of a list that can be used, in their order. */
  items<T>(name: keyof typeof GATEWAY_LIMITS, schema: z.ZodType<T>, numeric: readonly string[]): Found<T>[] {
    const list = this.raw[name];
    if (!isPresent(list)) return [];
    if (!Array.isArray(list)) {
      this.reject("E_ENUM", name, "must be an array");
      return [];
    }
    const most = GATEWAY_LIMITS[name];
    if (list.length > most) {
      this.reject("E_RANGE", name, `at most ${most} entries; ${list.length - most} are left out`);
    }
    return list.slice(0, most).flatMap((fields: unknown, index): Found<T>[] => {
      const at = { path: `gateway.${name}.${index}`, id: String(index), index, fields: isObject(fields) ? fields : {} };
      if (!isObject(fields)) {
        this.rejected.push(configIssue("E_ENUM", at, "", "must be an object"));
        return [];
      }
      const { fields: item, rejected } = judgeFields(at, schema, tidy(fields, new Set(numeric)), CODES);
      this.rejected.push(...rejected);
      return item === undefined ? [] : [{ item, at }];
    });
  }

  #scalars(): Scalars {
    const values = tidy(this.raw, NUMERIC);
    // The older API knows limits below nothing, which mean what nothing means.
    for (const field of ["maxmbps", "maxClientWriteMbps"]) {
      const value = values[field];
      if (typeof value === "number" && value < 0) values[field] = 0;
    }
    for (const [field, schema] of Object.entries(gatewayScalars)) {
      const parsed = schema.optional().safeParse(values[field]);
      if (parsed.success) continue;
      this.#bad.add(field);
      delete values[field];
      const [issue] = parsed.error.issues;
      const text = issue === undefined ? "is wrong" : issueText(issue);
      this.reject(CODES[field] ?? "E_ENUM", field, text);
    }
    return Scalars.parse(values);
  }
}

const CODES: Readonly<Record<string, ConfigCode>> = {
  type: "E_ENUM",
  host: "E_NAME_FORMAT",
  port: "E_PORT_RANGE",
  udpPort: "E_PORT_RANGE",
  cert: "E_NAME_FORMAT",
  maxmbps: "E_RANGE",
  maxClientWriteMbps: "E_RANGE",
  monitorHopsInterval: "E_RANGE",
  monitorHopsSynPayload: "E_RANGE",
  monitorHopsIcmpPayload: "E_RANGE",
  name: "E_NAME_FORMAT",
  id: "E_NAME_FORMAT",
  node: "E_NAME_FORMAT",
  local: "E_CIDR_INVALID",
  route: "E_NAME_FORMAT",
  dest: "E_NAME_FORMAT",
  metric: "E_RANGE",
  maxLatency: "E_RANGE",
  triggerCount: "E_RANGE",
  recoverCount: "E_RANGE",
};
const NUMERIC: ReadonlySet<string> = new Set([
  "port",
  "udpPort",
  "maxmbps",
  "maxClientWriteMbps",
  "monitorHopsInterval",
  "monitorHopsSynPayload",
  "monitorHopsIcmpPayload",
]);

/** An empty text or null is an absent field, and a number written as text is a number. */
function tidy(fields: JsonObject, numeric: ReadonlySet<string>): Record<string, unknown> {
  const present = Object.entries(fields).filter(([, value]) => isPresent(value) && value !== "");
  return Object.fromEntries(
    present.map(([key, value]) => [key, numeric.has(key) ? (toNumber(value) ?? value) : value]),
  );
}
