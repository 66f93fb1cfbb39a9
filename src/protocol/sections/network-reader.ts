import type { z } from "zod";
import { parseCidr } from "../../lib/cidr.ts";
import type { JsonObject } from "../values.ts";
import { isObject, isPresent, toNumber, type RawItem } from "./forms.ts";
import { configIssue, type ConfigCode, type ConfigIssue } from "./issue.ts";
import { judgeFields } from "./items.ts";
import { LINE, METRIC, MTU } from "./network-fields.ts";

/** Where something stands in the section. */
export type Place = Pick<RawItem, "path" | "id">;

/** An item that can be used, and where it stands. */
export interface Found<T> {
  readonly item: T;
  readonly at: RawItem;
}

/** Gathers what is said of the section while it is read. */
export class NetworkReader {
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

  /** Rejects what is right by itself and cannot stand beside the rest. */
  conflict(code: ConfigCode, at: Place, field: string, text: string): void {
    const issue = configIssue(code, at, field, text);
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
    const entries = list.slice(0, most).flatMap((value: unknown, index): RawItem[] => {
      const path = `${at.path}.${name}.${index}`;
      if (isObject(value)) return [{ path, id: idOf(value, index), index, fields: value }];
      this.reject("E_ENUM", { path, id: String(index) }, "", "must be an object");
      return [];
    });
    return { entries, isWhole: list.length <= most };
  }

  /**
   * Judges one entry. A field of `soft` that is wrong is left out and the entry goes on; any other takes the entry with it.
   * What is merely sloppy is put right and noted.
   */
  judge<T>(at: RawItem, schema: z.ZodType<T>, soft: ReadonlySet<string> = SOFT): T | undefined {
    const tidy = this.#tidy(at);
    for (;;) {
      const { fields, rejected } = judgeFields(at, schema, tidy, CODES);
      if (fields !== undefined) return fields;
      const names = rejected.map(({ path }) => path.slice(at.path.length + 1).split(".")[0] ?? "");
      this.rejected.push(...rejected);
      if (names.length === 0 || !names.every((name) => soft.has(name) && Object.hasOwn(tidy, name))) return undefined;
      for (const name of names) this.#drop(tidy, name, rejected, at);
    }
  }

  /** Of a list of texts only the wrong ones go. */
  #drop(tidy: Record<string, unknown>, name: string, rejected: readonly ConfigIssue[], at: RawItem): void {
    const { [name]: value } = tidy;
    const prefix = `${at.path}.${name}.`;
    const bad = new Set(rejected.flatMap(({ path }) => (path.startsWith(prefix) ? [path.slice(prefix.length)] : [])));
    const kept = Array.isArray(value) ? value.filter((_, index) => !bad.has(String(index))) : [];
    if (bad.size > 0 && kept.length > 0) tidy[name] = kept;
    else delete tidy[name];
  }

  #tidy(at: RawItem): Record<string, unknown> {
    const tidy: Record<string, unknown> = {};
    for (const [name, value] of Object.entries(at.fields)) {
      if (!isPresent(value) || value === "") continue;
      if (NUMERIC.has(name)) tidy[name] = this.#clamped(at, name, toNumber(value) ?? value);
      else if (NETWORKS.has(name)) tidy[name] = this.#masked(at, name, value);
      else tidy[name] = name === "ports" && typeof value === "number" ? String(value) : value;
    }
    return tidy;
  }

  #clamped(at: RawItem, name: string, value: unknown): unknown {
    const range = RANGES.get(name);
    if (range === undefined || typeof value !== "number" || !Number.isInteger(value)) return value;
    // The range of a tunnel is another.
    if (name === "mtu" && at.fields["type"] !== undefined) return value;
    const inside = Math.min(Math.max(value, range.min), range.max);
    if (inside !== value)
      this.note("E_RANGE", at, name, `${value} is not ${range.min}..${range.max}; taken as ${inside}`);
    return inside;
  }

  #masked(at: RawItem, name: string, value: unknown): unknown {
    if (typeof value !== "string" || value.includes(":")) return value;
    const cidr = parseCidr(value);
    if (cidr === undefined || cidr.text === value) return value;
    if (cidr.hadHostBits) {
      const [text, outcome] = [`${value} has host bits`, `taken as ${cidr.text}`];
      // Only translations are written in one spelling by newer control planes.
      if (at.path.includes(".nats.")) this.tolerate("E_CIDR_HOSTBITS", at, name, text, outcome);
      else this.note("E_CIDR_HOSTBITS", at, name, `${text}; ${outcome}`);
    } else if (!value.includes("/")) {
      this.note("E_CIDR_INVALID", at, name, `${value} has no prefix length; taken as ${cidr.text}`);
    }
    return cidr.text;
  }
}

/** What people call an entry: its name, or its place. */
function idOf(fields: JsonObject, index: number): string {
  for (const name of ["nic", "name", "uid"]) {
    const value = fields[name];
    if (typeof value === "string" && value !== "") return value.slice(0, 128);
  }
  return String(index);
}

/** Fields that nothing hangs on: without them an entry does the rest of what it says. */
const SOFT: ReadonlySet<string> = new Set(["description", "uid", "subnet", "dhcpPool"]);

interface Bounds {
  readonly min: number;
  readonly max: number;
}

const RANGES: ReadonlyMap<string, Bounds> = new Map<string, Bounds>([
  ["mtu", MTU],
  ["metric", METRIC],
  ["line", LINE],
]);
const NUMERIC: ReadonlySet<string> = new Set([
  "mtu",
  "speed",
  "vlanID",
  "metric",
  "line",
  "networkId",
  "ike",
  "ikeGroup",
  "pfs",
  "dpdInterval",
  "dpdRetries",
  "rekeyInterval",
  "replayWindow",
]);
const NETWORKS: ReadonlySet<string> = new Set([
  "route",
  "dest",
  "source",
  "toSource",
  "toDest",
  "localSubnet",
  "remoteSubnet",
  "bridgeCIDR",
]);
const CODES: Readonly<Record<string, ConfigCode>> = {
  nic: "E_NAME_FORMAT",
  name: "E_NAME_FORMAT",
  vrf: "E_NAME_FORMAT",
  dev: "E_NAME_FORMAT",
  in: "E_NAME_FORMAT",
  iface: "E_NAME_FORMAT",
  uid: "E_RANGE",
  description: "E_RANGE",
  ip: "E_CIDR_INVALID",
  addIps: "E_CIDR_INVALID",
  gateway: "E_CIDR_INVALID",
  dns: "E_CIDR_INVALID",
  clusterIP: "E_CIDR_INVALID",
  route: "E_CIDR_INVALID",
  next: "E_CIDR_INVALID",
  dest: "E_CIDR_INVALID",
  via: "E_CIDR_INVALID",
  source: "E_CIDR_INVALID",
  toSource: "E_CIDR_INVALID",
  toDest: "E_CIDR_INVALID",
  dnat: "E_CIDR_INVALID",
  destination: "E_CIDR_INVALID",
  localSubnet: "E_CIDR_INVALID",
  remoteSubnet: "E_CIDR_INVALID",
  bridgeCIDR: "E_CIDR_INVALID",
  mtu: "E_RANGE",
  vlanID: "E_RANGE",
  metric: "E_RANGE",
  line: "E_RANGE",
  networkId: "E_RANGE",
  dpdInterval: "E_RANGE",
  dpdRetries: "E_RANGE",
  rekeyInterval: "E_RANGE",
  ports: "E_PORT_RANGE",
  psk: "E_SECRET_LENGTH",
  publicKey: "E_KEY_FORMAT",
  presharedKey: "E_KEY_FORMAT",
};
