import { isIP } from "node:net";
import { isInBlock, parseCidr } from "./cidr.ts";
import { plainAddress } from "./plain-address.ts";

/** Reasons why a transfer refuses to connect to an address. */
export type AddressRefusal =
  | "unspecified"
  | "loopback"
  | "link-local"
  | "metadata"
  | "multicast"
  | "documentation"
  | "benchmark"
  | "reserved"
  | "own"
  | "not-an-address";

export interface AddressRules {
  /** CIDR blocks in which loopback and own addresses are allowed. */
  readonly allow: readonly string[];
  /** The machine's own addresses. */
  readonly own: readonly string[];
}

type Range = readonly [block: string, refusal: AddressRefusal];

/** IANA's special-purpose addresses (RFC 6890) and the metadata services of clouds; the first block that contains an address decides. */
const FOUR: readonly Range[] = [
  ["100.100.100.200/32", "metadata"],
  ["168.63.129.16/32", "metadata"],
  ["169.254.169.254/32", "metadata"],
  ["169.254.170.2/32", "metadata"],
  ["192.0.0.192/32", "metadata"],
  ["0.0.0.0/8", "unspecified"],
  ["127.0.0.0/8", "loopback"],
  ["169.254.0.0/16", "link-local"],
  ["192.0.0.0/24", "reserved"],
  ["192.88.99.0/24", "reserved"],
  ["192.0.2.0/24", "documentation"],
  ["198.51.100.0/24", "documentation"],
  ["203.0.113.0/24", "documentation"],
  ["198.18.0.0/15", "benchmark"],
  ["224.0.0.0/4", "multicast"],
  ["240.0.0.0/4", "reserved"],
];

const SIX: readonly Range[] = [
  ["fd00:ec2::/32", "metadata"],
  ["fd20:ce::254/128", "metadata"],
  ["::/128", "unspecified"],
  ["::1/128", "loopback"],
  ["fe80::/10", "link-local"],
  ["ff00::/8", "multicast"],
  ["2001:db8::/32", "documentation"],
  ["3fff::/20", "documentation"],
  ["2001:2::/48", "benchmark"],
];

/** IPv6 prefixes that embed an IPv4 address, with its byte offset; Teredo inverts the client's bits (RFC 4380 §4). */
const EMBEDDED: readonly (readonly [block: string, bytes: readonly number[], isInverted?: boolean])[] = [
  ["::/96", [12]],
  ["64:ff9b::/96", [12]],
  ["2002::/16", [2]],
  ["2001::/32", [4]],
  ["2001::/32", [12], true],
];

/** Unique local addresses (RFC 4193) and the deprecated site-local ones; IPv6's counterpart of RFC 1918. */
const LOCAL: readonly string[] = ["fc00::/7", "fec0::/10"];
const GLOBAL = "2000::/3";
const PROTOCOLS = "2001::/23";

/** Reasons that an `allow` block overrides; every other reason is final. */
const LIFTED: ReadonlySet<AddressRefusal> = new Set(["loopback", "own"]);

/**
 * Returns why a transfer refuses an address, or undefined if it may connect. Accepts every spelling, with or without a zone. An IPv6
 * address that embeds an IPv4 address (mapped, NAT64, 6to4, Teredo) is checked as both.
 */
export function refusalOf(address: string, { allow, own }: AddressRules): AddressRefusal | undefined {
  const plain = plainAddress(address);
  const refusal = kindOf(plain, allow) ?? (own.some((mine) => plainAddress(mine) === plain) ? "own" : undefined);
  return refusal !== undefined && isLifted(plain, refusal, allow) ? undefined : refusal;

  function kindOf(text: string, blocks: readonly string[]): AddressRefusal | undefined {
    const family = isIP(text);
    if (family === 0) return "not-an-address";
    const special = (family === 4 ? FOUR : SIX).find(([block]) => isInBlock(text, block))?.[1];
    if (special !== undefined || family === 4) return special;
    const held = embeddedIn(text);
    for (const four of held) {
      const refusal = refusalOf(four, { allow: blocks, own });
      if (refusal !== undefined) return refusal;
    }
    if (held.length > 0 || LOCAL.some((block) => isInBlock(text, block))) return undefined;
    return isInBlock(text, GLOBAL) && !isInBlock(text, PROTOCOLS) ? undefined : "reserved";
  }
}

function isLifted(address: string, refusal: AddressRefusal, allow: readonly string[]): boolean {
  return LIFTED.has(refusal) && allow.some((block) => isInBlock(address, block));
}

/** Returns the IPv4 addresses that an IPv6 address embeds. */
function embeddedIn(address: string): readonly string[] {
  const blocks = EMBEDDED.filter(([block]) => isInBlock(address, block));
  if (blocks.length === 0) return [];
  const bytes = bytesOf(address);
  return blocks.flatMap(([, starts, isInverted = false]) =>
    starts.map((at) => [...bytes.subarray(at, at + 4)].map((byte) => (isInverted ? 255 - byte : byte)).join(".")),
  );
}

function bytesOf(address: string): Uint8Array {
  const groups = (parseCidr(address)?.text ?? "").split("/")[0] ?? "";
  const [head = "", tail] = groups.split("::");
  const [first, last] = [hexGroups(head), tail === undefined ? [] : hexGroups(tail)];
  const gap = Array.from({ length: 8 - first.length - last.length }, () => 0);
  return Uint8Array.from([...first, ...gap, ...last].flatMap((group) => [group >> 8, group & 255]));
}

const hexGroups = (text: string): readonly number[] =>
  text === "" ? [] : text.split(":").map((group) => Number.parseInt(group, 16));
