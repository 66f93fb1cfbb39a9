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
  const block = blockOf(text);
  if (block === undefined) return undefined;
  const { family, network, prefix, value } = block;
  const spelled = family === 4 ? ipv4Text(network) : ipv6Text(network);
  return { text: `${spelled}/${prefix}`, hadHostBits: network !== value };
}

/** Reads the same as `parseCidr`, for comparing addresses with it. */
export function addressRange(text: string): AddressRange | undefined {
  const block = blockOf(text);
  if (block === undefined) return undefined;
  const { family, bits, prefix, network } = block;
  const last = network + (1n << BigInt(bits - prefix)) - 1n;
  const bytesOf = (value: bigint): Uint8Array =>
    Buffer.from(`0${family}${value.toString(16).padStart(bits / 4, "0")}`, "hex");
  return { low: bytesOf(network), high: bytesOf(last) };
}

function blockOf(text: string) {
  const [address = "", length, ...rest] = text.split("/");
  const family = isIP(address);
  if (family === 0 || address.includes("%") || rest.length > 0) return undefined;
  const bits = family === 4 ? 32 : 128;
  if (length !== undefined && !/^(?:0|[1-9]\d{0,2})$/.test(length)) return undefined;
  const prefix = length === undefined ? bits : Number(length);
  if (prefix > bits) return undefined;
  const value = family === 4 ? ipv4Value(address) : ipv6Value(address);
  const network = (value >> BigInt(bits - prefix)) << BigInt(bits - prefix);
  return { family, bits, prefix, value, network };
}

const ipv4Value = (text: string): bigint => text.split(".").reduce((value, part) => value * 256n + BigInt(part), 0n);

const ipv4Text = (value: bigint): string => [24n, 16n, 8n, 0n].map((shift) => (value >> shift) & 255n).join(".");

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
