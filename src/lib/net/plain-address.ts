import { isIP, SocketAddress } from "node:net";
import { parseCidr } from "./cidr.ts";

/** Returns the shortest form of an address, without its scope; an IPv4-mapped IPv6 address becomes IPv4 (RFC 4291 §2.5.5.2). */
export function plainAddress(text: string): string {
  const address = text.split("%")[0] ?? text;
  if (isIP(address) !== 6) return address;
  const short = new SocketAddress({ family: "ipv6", address }).address;
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/.exec(short)?.[1];
  return mapped ?? short;
}

/** Reports whether a plain address is one of the loopback. */
export function isLoopback(address: string): boolean {
  return address === "::1" || (isIP(address) === 4 && address.startsWith("127."));
}

/** Returns the prefix that shares a limit: an IPv4 address, or the IPv6 network of one subscriber (RFC 6177). */
export function sharedPrefix(address: string): string {
  const plain = plainAddress(address);
  return isIP(plain) === 6 ? (parseCidr(`${plain}/64`)?.text ?? plain) : plain;
}
