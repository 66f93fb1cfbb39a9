import { isIP } from "node:net";

/** A block of addresses in its one spelling (RFC 4632, RFC 5952). */
export interface Cidr {
  readonly text: string;
  /** Whether the text it came from named an address inside the block. */
  readonly hadHostBits: boolean;
}

/** The first and the last address of a block, as bytes that sort as addresses do: the family, then the address. */
export interface AddressRange {
  readonly low: Uint8Array;
  readonly high: Uint8Array;
}

/** Reads a block, or an address as the block of itself; host bits are masked away. Undefined when it is neither. */
export function parseCidr(text: string): Cidr | undefined {
  const four = ipv4BlockOf(text);
  if (four !== undefined) {
    const { network, value, prefix } = four;
    return { text: `${ipv4Text(network)}/${prefix}`, hadHostBits: network !== value };
  }
  const block = ipv6BlockOf(text);
  if (block === undefined) return undefined;
  const { network, prefix, value } = block;
  return { text: `${ipv6Text(network)}/${prefix}`, hadHostBits: network !== value };
}

/** Reads the same as `parseCidr`, for comparing addresses with it. */
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

const IPV4_BLOCK = /^([\d.]+)(?:\/(0|[1-9]\d?))?$/;

/** Of IPv4 there may be thousands to read, and plain numbers are far quicker than large ones. */
function ipv4BlockOf(text: string) {
  const [, address = "", length = "32"] = IPV4_BLOCK.exec(text) ?? [];
  const prefix = Number(length);
  if (prefix > 32 || isIP(address) !== 4) return undefined;
  let value = 0;
  for (const part of address.split(".")) value = value * 256 + Number(part);
  const size = 2 ** (32 - prefix);
  return { prefix, value, network: Math.floor(value / size) * size };
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
