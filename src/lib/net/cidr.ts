import { isIP } from "node:net";

/** A block of addresses in its one spelling (RFC 4632, RFC 5952). */
export interface Cidr {
  readonly text: string;
  /** Reports whether the source text named an address inside the block (host bits were set). */
  readonly hadHostBits: boolean;
}

/** Returns the first and last address of a block as sortable bytes: the family, then the address. */
export interface AddressRange {
  readonly low: Uint8Array;
  readonly high: Uint8Array;
}

/** Parses a CIDR block, or an address as a block of one; host bits are cleared. Returns undefined if the text is neither. */
export function parseCidr(text: string): Cidr | undefined {
  const four = ipv4BlockOf(text);
  if (four !== undefined) {
    const { network, value, prefix, isWhole } = four;
    // IPv4 can be written in one way only.
    const isSame = isWhole && network === value;
    return { text: isSame ? text : `${ipv4Text(network)}/${prefix}`, hadHostBits: network !== value };
  }
  const block = ipv6BlockOf(text);
  if (block === undefined) return undefined;
  const { network, prefix, value } = block;
  return { text: `${ipv6Text(network)}/${prefix}`, hadHostBits: network !== value };
}

/** Parses like `parseCidr`, into a form for matching addresses. */
export function addressRange(text: string): AddressRange | undefined {
  const four = ipv4BlockOf(text);
  if (four !== undefined) {
    const { network, prefix } = four;
    return { low: bytesOfNumber(network), high: bytesOfNumber(network + 2 ** (32 - prefix) - 1) };
  }
  const block = ipv6BlockOf(text);
  if (block === undefined) return undefined;
  const { prefix, network } = block;
  const last = network + (1n << BigInt(128 - prefix)) - 1n;
  const bytesOf = (value: bigint): Uint8Array => Buffer.from(`06${value.toString(16).padStart(32, "0")}`, "hex");
  return { low: bytesOf(network), high: bytesOf(last) };
}

const [DOT, SLASH, ZERO, NINE] = [46, 47, 48, 57];

/** Parses IPv4 without patterns and big integers: configurations hold thousands of blocks. */
function ipv4BlockOf(text: string) {
  let value = 0;
  let part = 0;
  let digits = 0;
  let parts = 0;
  let at = 0;
  for (; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    if (code >= ZERO && code <= NINE) {
      if (digits > 0 && part === 0) return undefined;
      part = part * 10 + code - ZERO;
      digits += 1;
      if (part > 255) return undefined;
    } else {
      if (digits === 0) return undefined;
      value = value * 256 + part;
      parts += 1;
      if (code === SLASH) break;
      if (code !== DOT || parts === 4) return undefined;
      part = 0;
      digits = 0;
    }
  }
  const prefix = at === text.length ? 32 : prefixAt(text, at + 1);
  if (at === text.length) {
    if (digits === 0) return undefined;
    value = value * 256 + part;
    parts += 1;
  }
  if (parts !== 4 || prefix > 32) return undefined;
  const size = 2 ** (32 - prefix);
  return { prefix, value, network: Math.floor(value / size) * size, isWhole: at < text.length };
}

/** Returns the number that ends the text, or `Infinity` if it has none in canonical form. */
function prefixAt(text: string, from: number): number {
  const length = text.length - from;
  if (length < 1 || length > 2 || (length === 2 && text.charCodeAt(from) === ZERO)) return Infinity;
  let value = 0;
  for (let at = from; at < text.length; at += 1) {
    const digit = text.charCodeAt(at) - ZERO;
    if (digit < 0 || digit > 9) return Infinity;
    value = value * 10 + digit;
  }
  return value;
}

/** Reports whether an address is in a block of the same family; false if either is invalid. */
export function isInBlock(address: string, block: string): boolean {
  const [four, one] = [ipv4BlockOf(block), ipv4BlockOf(address)];
  if (four !== undefined && one !== undefined) {
    const last = four.network + 2 ** (32 - four.prefix) - 1;
    return four.network <= one.network && one.network + 2 ** (32 - one.prefix) - 1 <= last;
  }
  const [range, other] = [addressRange(block), addressRange(address)];
  if (range === undefined || other === undefined) return false;
  return Buffer.compare(range.low, other.low) <= 0 && Buffer.compare(other.high, range.high) <= 0;
}

const ipv4Text = (value: number): string =>
  `${value >>> 24}.${(value >>> 16) & 255}.${(value >>> 8) & 255}.${value & 255}`;

const bytesOfNumber = (value: number): Uint8Array =>
  Uint8Array.of(4, value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255);

function ipv6BlockOf(text: string) {
  const [address = "", length, ...rest] = text.split("/");
  if (isIP(address) !== 6 || address.includes("%") || rest.length > 0) return undefined;
  if (length !== undefined && !/^(?:0|[1-9]\d{0,2})$/.test(length)) return undefined;
  const prefix = length === undefined ? 128 : Number(length);
  if (prefix > 128) return undefined;
  const value = ipv6Value(address);
  const network = (value >> BigInt(128 - prefix)) << BigInt(128 - prefix);
  return { prefix, value, network };
}

const ipv4Value = (text: string): bigint => text.split(".").reduce((value, part) => value * 256n + BigInt(part), 0n);

function ipv6Value(text: string): bigint {
  const [head = "", tail] = text.split("::");
  const first = groupsOf(head);
  const last = tail === undefined ? [] : groupsOf(tail);
  const gap = Array.from({ length: 8 - first.length - last.length }, () => 0n);
  return [...first, ...gap, ...last].reduce((value, group) => value * 65_536n + group, 0n);
}

/** The last four bytes may be written as an IPv4 address (RFC 4291 §2.2). */
function groupsOf(text: string): bigint[] {
  if (text === "") return [];
  return text.split(":").flatMap((part) => {
    if (!part.includes(".")) return [BigInt(`0x${part}`)];
    const value = ipv4Value(part);
    return [value >> 16n, value & 65_535n];
  });
}

function ipv6Text(value: bigint): string {
  const groups = Array.from({ length: 8 }, (_, at) => ((value >> BigInt(112 - 16 * at)) & 65_535n).toString(16));
  return new URL(`http://[${groups.join(":")}]`).hostname.slice(1, -1);
}
