import { isIPv4 } from "node:net";
import { parseCidr } from "../../lib/net/cidr.ts";
import { listOf, textOf } from "../../lib/formats/json-shape.ts";
import { JsonObject } from "../../protocol/values/values.ts";
import { defined } from "../../lib/defined.ts";

/** Address configuration of an interface. */
export interface Wan {
  readonly nic: string;
  /** Static addressing; DHCP if absent. */
  readonly fixed?: { readonly ip: string; readonly gateway?: string };
  readonly dns: readonly string[];
}

/** Parses a prefix length: `24`, `/24` or `255.255.255.0`; undefined for other text. Pure. */
export function prefixLength(text: string): number | undefined {
  const plain = text.trim().replace(/^\//, "");
  if (/^\d{1,2}$/.test(plain)) return Number(plain) >= 1 && Number(plain) <= 32 ? Number(plain) : undefined;
  if (!isIPv4(plain)) return undefined;
  const bits = plain
    .split(".")
    .map((part) => Number(part).toString(2).padStart(8, "0"))
    .join("");
  return /^1+0*$/.test(bits) ? bits.replaceAll("0", "").length : undefined;
}

/** Parses a host address with an optional prefix length. Pure. */
export function addressOf(text: string): { readonly ip: string; readonly length?: number } | undefined {
  const [ip = "", mask, ...rest] = text.trim().split("/");
  if (rest.length > 0 || !isIPv4(ip) || /^(?:0|127|22[4-9]|2[3-5]\d)\./.test(ip)) return undefined;
  if (mask === undefined) return { ip };
  const length = prefixLength(mask);
  return length === undefined ? undefined : { ip, length };
}

/** Reports whether a gateway is in the network of an address with its prefix length. Pure. */
export function isInside(network: string, address: string): boolean {
  const block = parseCidr(network);
  return block !== undefined && parseCidr(`${address}/${network.split("/")[1] ?? ""}`)?.text === block.text;
}

/** Returns the section `network` with this interface replaced. Pure. */
export function withWan(before: JsonObject, { nic, fixed, dns }: Wan): JsonObject {
  const others = listOf(before["interfaces"]).filter((one) => {
    const entry = JsonObject.safeParse(one);
    return !entry.success || entry.data["nic"] !== nic;
  });
  const own = {
    nic,
    ...(fixed === undefined ? { dhcp: true } : { ip: fixed.ip, ...defined({ gateway: fixed.gateway }) }),
    ...(dns.length === 0 ? {} : { dns: [...dns] }),
  };
  return { ...before, interfaces: [own, ...others] };
}

/** Returns the address configuration of each interface of a section. Pure. */
export function networkLines(section: JsonObject): readonly string[] {
  return listOf(section["interfaces"]).flatMap((one) => {
    const entry = JsonObject.safeParse(one);
    const nic = textOf(entry.data?.["nic"]);
    if (nic === undefined) return [];
    const ip = textOf(entry.data?.["ip"]);
    const gateway = textOf(entry.data?.["gateway"]);
    const dns = listOf(entry.data?.["dns"]).flatMap((server) => textOf(server) ?? []);
    const fixed = ip === undefined ? {} : { fixed: { ip, ...defined({ gateway }) } };
    return [wanText({ nic, ...fixed, dns })];
  });
}

/** Formats an interface's configuration. Pure. */
export function wanText({ nic, fixed, dns }: Wan): string {
  const how =
    fixed === undefined
      ? "address by DHCP"
      : `address ${fixed.ip}${fixed.gateway === undefined ? "" : `, gateway ${fixed.gateway}`}`;
  return `${nic}: ${how}${dns.length === 0 ? "" : `, name servers ${dns.join(", ")}`}`;
}
