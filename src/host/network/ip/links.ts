import { endianness, networkInterfaces } from "node:os";
import { SocketAddress } from "node:net";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { fieldsOf, shellFields, toCount } from "../../../lib/text/text-fields.ts";
import type { Reader } from "../../reader.ts";

/** A network link by /sys/class/net (Documentation/ABI/testing/sysfs-class-net). */
export interface Link {
  readonly name: string;
  readonly index: number | undefined;
  /** Lower case with colons; undefined if the link has none. */
  readonly mac: string | undefined;
  readonly mtu: number | undefined;
  readonly speedMbps: number | undefined;
  readonly duplex: "full" | "half" | undefined;
  /** RFC 2863: up, down, dormant, unknown, … */
  readonly operState: string;
  readonly hasCarrier: boolean | undefined;
  /** Whether the administrator switched it on (IFF_UP). */
  readonly isEnabled: boolean;
  readonly isLoopback: boolean;
  /** Whether it has a device, physical or provided by a hypervisor. */
  readonly isPhysical: boolean;
  /** `vlan`, `bond`, `bridge`, `wlan`, …; undefined for a plain link. */
  readonly kind: string | undefined;
}

export interface LinkAddress {
  readonly link: string;
  readonly family: 4 | 6;
  readonly address: string;
  readonly prefix: number;
}

export interface Route {
  readonly link: string;
  readonly family: 4 | 6;
  readonly destination: string;
  readonly prefix: number;
  readonly gateway: string | undefined;
  readonly metric: number;
}

const IFF_UP = 0x1;
const IFF_LOOPBACK = 0x8;
const RTF_UP = 0x1;
const RTF_REJECT = 0x200;
const NO_MAC = "00:00:00:00:00:00";
const IS_LITTLE_ENDIAN = endianness() === "LE";

/** Returns every link of this network namespace. */
export function readLinks(reader: Reader): readonly Link[] {
  return (reader.list("/sys/class/net") ?? []).flatMap((name) => {
    const link = readLink(reader, name);
    return link === undefined ? [] : [link];
  });
}

/** Returns one link; undefined if it does not exist. */
export function readLink(reader: Reader, name: string): Link | undefined {
  const at = `/sys/class/net/${name}`;
  const word = (file: string): string | undefined => reader.read(`${at}/${file}`)?.trim();
  const flags = Number(word("flags") ?? Number.NaN);
  if (!Number.isInteger(flags)) return undefined;
  const mac = word("address")?.toLowerCase();
  const speedMbps = toCount(word("speed"));
  const duplex = word("duplex");
  const carrier = word("carrier");
  return {
    name,
    index: toCount(word("ifindex")),
    mac: mac === undefined || mac === NO_MAC || !/^[0-9a-f]{2}(?::[0-9a-f]{2}){5}$/.test(mac) ? undefined : mac,
    mtu: toCount(word("mtu")),
    speedMbps: speedMbps === 0 ? undefined : speedMbps,
    duplex: duplex === "full" || duplex === "half" ? duplex : undefined,
    operState: word("operstate") ?? "unknown",
    hasCarrier: carrier === "1" || carrier === "0" ? carrier === "1" : undefined,
    isEnabled: (flags & IFF_UP) !== 0,
    isLoopback: (flags & IFF_LOOPBACK) !== 0,
    isPhysical: reader.fingerprint(`${at}/device`) !== undefined,
    kind: shellFields(reader.read(`${at}/uevent`) ?? "").get("DEVTYPE"),
  };
}

/** Returns the addresses of running links by getifaddrs(3). */
export function readAddresses(): readonly LinkAddress[] {
  return Object.entries(networkInterfaces()).flatMap(([name, addresses]) =>
    (addresses ?? []).flatMap(({ address, family, cidr }) => {
      const prefix = toCount(cidr?.split("/")[1]);
      // An address with a label appears under a name of its own, `eth0:1`.
      const link = name.split(":")[0] ?? name;
      return prefix === undefined ? [] : [{ link, family: family === "IPv4" ? 4 : 6, address, prefix } as const];
    }),
  );
}

/** Returns the IPv4 addresses, including those of enabled links without a carrier: unplugging a cable removes no address. */
export function readAddresses4(reader: Reader, running = readAddresses()): readonly LinkAddress[] {
  const own = running.filter(({ family }) => family === 4);
  const links = new Set(own.map(({ link }) => link));
  const connected = parseRoutes(reader.read("/proc/net/route") ?? "").filter(
    ({ link, gateway, prefix }) => gateway === undefined && prefix > 0 && !links.has(link),
  );
  if (connected.length === 0) return own;
  const known = new Set(own.map(({ address }) => address));
  const others = parseLocalAddresses(reader.read("/proc/net/fib_trie") ?? "").filter((address) => !known.has(address));
  return [...own, ...others.flatMap((address) => onLink(address, connected) ?? [])];
}

/** Returns the IPv4 addresses by link, in the kernel's order: the own address of a link that is up precedes those added to it. */
export function addressesByLink(reader: Reader): ReadonlyMap<string, readonly string[]> {
  return byLink(readAddresses4(reader), ({ address }) => address);
}

/** Returns the IPv4 addresses by link like `addressesByLink`, each with its prefix length. */
export function networksByLink(reader: Reader): ReadonlyMap<string, readonly string[]> {
  return byLink(readAddresses4(reader), ({ address, prefix }) => `${address}/${prefix}`);
}

function byLink(
  addresses: readonly LinkAddress[],
  textOf: (address: LinkAddress) => string,
): ReadonlyMap<string, readonly string[]> {
  const texts = new Map<string, string[]>();
  for (const one of addresses) texts.set(one.link, [...(texts.get(one.link) ?? []), textOf(one)]);
  return texts;
}

/** Returns the smallest network of a link that contains an address. */
function onLink(address: string, connected: readonly Route[]): LinkAddress | undefined {
  const [best] = connected
    .filter(({ destination, prefix }) => networkOf(address, prefix) === networkOf(destination, prefix))
    .toSorted((a, b) => b.prefix - a.prefix);
  return best === undefined ? undefined : { link: best.link, family: 4, address, prefix: best.prefix };
}

function networkOf(address: string, prefix: number): string | undefined {
  return parseCidr(`${address}/${prefix}`)?.text;
}

/** Returns the machine's own IPv4 addresses of /proc/net/fib_trie, on any link. */
export function parseLocalAddresses(text: string): readonly string[] {
  const found = new Set<string>();
  let leaf = "";
  for (const line of text.split("\n")) {
    leaf = /\|-- (\d+\.\d+\.\d+\.\d+)$/.exec(line)?.[1] ?? leaf;
    if (/^\s+\/32 host LOCAL$/.test(line) && leaf !== "") found.add(leaf);
  }
  return [...found];
}

/** Parses the usable IPv4 routes of /proc/net/route. */
export function parseRoutes(text: string): readonly Route[] {
  return text.split("\n").flatMap((line) => {
    const [link, destination, gateway, flags, , , metric, mask] = fieldsOf(line);
    if (link === undefined || !isUsable(flags)) return [];
    const [to, via, netmask] = [address4(destination), address4(gateway), address4(mask)];
    const cost = toCount(metric);
    if (to === undefined || via === undefined || netmask === undefined || cost === undefined) return [];
    return [
      {
        link,
        family: 4,
        destination: to,
        prefix: ones(netmask),
        gateway: via === "0.0.0.0" ? undefined : via,
        metric: cost,
      } as const,
    ];
  });
}

/** Parses the usable IPv6 routes of /proc/net/ipv6_route. */
export function parseRoutes6(text: string): readonly Route[] {
  return text.split("\n").flatMap((line) => {
    const [destination, length, , , gateway, metric, , , flags, link] = fieldsOf(line);
    if (link === undefined || !isUsable(flags)) return [];
    const [to, via] = [address6(destination), address6(gateway)];
    const [prefix, cost] = [hex(length), hex(metric)];
    if (to === undefined || via === undefined || prefix === undefined || prefix > 128 || cost === undefined) return [];
    return [
      { link, family: 6, destination: to, prefix, gateway: via === "::" ? undefined : via, metric: cost } as const,
    ];
  });
}

/** Returns the default route with the lowest metric. */
export function defaultRoute(routes: readonly Route[], family: 4 | 6): Route | undefined {
  return routes
    .filter((route) => route.family === family && route.prefix === 0)
    .reduce<Route | undefined>(
      (best, route) => (best === undefined || route.metric < best.metric ? route : best),
      undefined,
    );
}

/** Formats a prefix length as a dotted mask: 24 is 255.255.255.0. */
export function netmaskOf(prefix: number): string {
  return [0, 8, 16, 24].map((at) => 256 - 2 ** (8 - Math.min(8, Math.max(0, prefix - at)))).join(".");
}

/** Parses an IPv4 address of /proc/net: eight hex digits in the machine's byte order. */
export function address4(text: string | undefined): string | undefined {
  if (text === undefined || !/^[0-9A-Fa-f]{8}$/.test(text)) return undefined;
  const bytes = [...Buffer.from(text, "hex")];
  return (IS_LITTLE_ENDIAN ? bytes.reverse() : bytes).join(".");
}

/** Formats an IPv6 address of 32 hex digits in the shortest form (RFC 5952). */
export function address6(text: string | undefined): string | undefined {
  if (text === undefined || !/^[0-9A-Fa-f]{32}$/.test(text)) return undefined;
  return new SocketAddress({ family: "ipv6", address: text.replaceAll(/(.{4})(?!$)/g, "$1:") }).address;
}

function isUsable(flags: string | undefined): boolean {
  const value = hex(flags);
  return value !== undefined && (value & RTF_UP) !== 0 && (value & RTF_REJECT) === 0;
}

function hex(text: string | undefined): number | undefined {
  return text !== undefined && /^[0-9A-Fa-f]{1,8}$/.test(text) ? Number.parseInt(text, 16) : undefined;
}

function ones(mask: string): number {
  return mask.split(".").reduce((sum, byte) => sum + Number(byte).toString(2).replaceAll("0", "").length, 0);
}
