import { z } from "zod";
import { issueText } from "../../values/issue-text.ts";
import type { JsonObject } from "../../values/values.ts";
import { isObject, isPresent } from "../common/forms.ts";
import { GATEWAY_LIMITS, gatewayScalars } from "./fields.ts";
import type { ConfigCode } from "../common/issue.ts";
import { convertFields, numberIn } from "../common/items.ts";
import { SectionReader, type Found } from "../common/section-reader.ts";

/** Place of an issue with the section itself. */
export const SECTION = { path: "gateway", id: "" };

const Scalars = z.object(gatewayScalars).partial();
type Scalars = z.infer<typeof Scalars>;

/** Reads the section `gateway` field by field. */
export class GatewayReader extends SectionReader {
  readonly raw: JsonObject;
  readonly fields: Scalars;
  readonly #bad = new Set<string>();

  constructor(raw: unknown) {
    super();
    if (isPresent(raw) && !isObject(raw)) this.reject("E_ENUM", SECTION, "", "must be an object");
    this.raw = isObject(raw) ? raw : {};
    this.fields = this.#scalars();
  }

  /** Reports whether a field is present, valid or not. */
  has(field: string): boolean {
    const value = this.raw[field];
    return isPresent(value) && value !== "";
  }

  isBad(field: string): boolean {
    return this.#bad.has(field);
  }

  /** Returns the valid items of a list, in order. */
  items<T>(name: keyof typeof GATEWAY_LIMITS, schema: z.ZodType<T>, numeric: readonly string[]): Found<T>[] {
    const byIndex = (_: JsonObject, index: number): string => String(index);
    const { entries } = this.entries(SECTION, this.raw, name, GATEWAY_LIMITS[name], byIndex);
    const convert = numberIn(new Set(numeric));
    return entries.flatMap((at): Found<T>[] => {
      const item = this.judgeTidy(at, schema, convertFields(at.fields, convert), NONE, CODES);
      return item === undefined ? [] : [{ item, at }];
    });
  }

  #scalars(): Scalars {
    const values: Record<string, unknown> = { ...convertFields(this.raw, numberIn(NUMERIC)) };
    // The older API accepts negative limits, which mean unlimited as 0 does.
    for (const field of ["maxmbps", "maxClientWriteMbps"]) {
      const value = values[field];
      if (typeof value === "number" && value < 0) values[field] = 0;
    }
    for (const [field, schema] of Object.entries(Scalars.shape)) {
      if (values[field] === undefined) continue;
      const parsed = schema.safeParse(values[field]);
      if (parsed.success) continue;
      this.#bad.add(field);
      delete values[field];
      const [issue] = parsed.error.issues;
      const text = issue === undefined ? "is wrong" : issueText(issue);
      this.reject(CODES[field] ?? "E_ENUM", SECTION, field, text);
    }
    return Scalars.parse(values);
  }
}

const NONE: ReadonlySet<string> = new Set();
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
