import type { z } from "zod";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { toNumber, type RawItem } from "../common/forms.ts";
import type { ConfigCode } from "../common/issue.ts";
import { LINE, METRIC, MTU } from "./fields.ts";
import { convertFields } from "../common/items.ts";
import { SectionReader } from "../common/section-reader.ts";

export type { Place } from "../common/section-reader.ts";

/** Reads the section `network`. */
export class NetworkReader extends SectionReader {
  /**
   * Validates one entry. An invalid field of `soft` is dropped; any other invalid field rejects the entry. A value with one obvious
   * meaning is corrected and reported as a notice.
   */
  judge<T>(at: RawItem, schema: z.ZodType<T>, soft: ReadonlySet<string> = SOFT): T | undefined {
    const fields = convertFields(at.fields, (name, value) => this.#converted(at, name, value));
    return this.judgeTidy(at, schema, fields, soft, CODES);
  }

  #converted(at: RawItem, name: string, value: unknown): unknown {
    if (NUMERIC.has(name)) return this.#clamped(at, name, toNumber(value) ?? value);
    if (NETWORKS.has(name)) return this.#masked(at, name, value);
    return name === "ports" && typeof value === "number" ? String(value) : value;
  }

  #clamped(at: RawItem, name: string, value: unknown): unknown {
    const range = RANGES.get(name);
    if (range === undefined || typeof value !== "number" || !Number.isInteger(value)) return value;
    // A tunnel has another range.
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
      // Newer control planes normalize translations only.
      if (at.path.includes(".nats.")) this.tolerate("E_CIDR_HOSTBITS", at, name, text, outcome);
      else this.note("E_CIDR_HOSTBITS", at, name, `${text}; ${outcome}`);
    } else if (!value.includes("/")) {
      this.note("E_CIDR_INVALID", at, name, `${value} has no prefix length; taken as ${cidr.text}`);
    }
    return cidr.text;
  }
}

/** Fields without which an entry still works. */
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
