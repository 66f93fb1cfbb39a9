import { addressRange } from "../../../lib/net/cidr.ts";

/** How the addresses of the container network are shared out; all of them are IPv4. */
export interface AddressPlan {
  readonly subnet: string;
  /** Those that no container gets: the bridge's own, the resolver's. */
  readonly reserved: ReadonlySet<string>;
}

/** Below this the subnet is for the machine and the resolver. */
const FIRST = 16;

/**
 * An address for each definition that has none of its own: what it was given before if that is still of the subnet, else the lowest that is
 * free, in the order of the ids. What is pinned is nobody else's. Pure.
 */
export function allotAddresses(
  definitions: readonly { readonly id: string; readonly ip: string | undefined }[],
  kept: ReadonlyMap<string, string>,
  { subnet, reserved }: AddressPlan,
): ReadonlyMap<string, string> {
  const range = addressRange(subnet);
  if (range === undefined) return new Map();
  const low = numberOf(range.low.subarray(1));
  const high = numberOf(range.high.subarray(1));
  const pinned = new Set(definitions.flatMap(({ ip }) => ip ?? []));
  const wanting = new Set(definitions.filter(({ ip }) => ip === undefined).map(({ id }) => id));
  const taken = new Set([...pinned, ...reserved]);
  const allotted = new Map<string, string>();
  for (const [id, address] of [...kept].toSorted(([one], [other]) => (one < other ? -1 : 1))) {
    const number = numberOf(address.split(".").map(Number));
    if (!(number > low && number < high) || taken.has(address)) continue;
    taken.add(address);
    if (wanting.has(id)) allotted.set(id, address);
  }
  let next = Math.min(low + FIRST, high);
  for (const id of [...wanting].toSorted()) {
    if (allotted.has(id)) continue;
    while (next < high && taken.has(textOf(next))) next += 1;
    if (next >= high) break;
    allotted.set(id, textOf(next));
    taken.add(textOf(next));
  }
  return allotted;
}

/** The first address that a machine has in a subnet. */
export function firstAddress(subnet: string): string | undefined {
  const range = addressRange(subnet);
  return range === undefined ? undefined : textOf(numberOf(range.low.subarray(1)) + 1);
}

/** The address of the node's resolver: as 172.18.1.2 in 172.18.0.0/16, and the second one of a small subnet. */
export function resolverAddress(subnet: string): string | undefined {
  const range = addressRange(subnet);
  if (range === undefined) return undefined;
  const low = numberOf(range.low.subarray(1));
  const high = numberOf(range.high.subarray(1));
  return textOf(low + 258 < high ? low + 258 : low + 2);
}

/** Whether an address is one that a machine may have in a subnet: neither the first nor the last of it. */
export function isHostOf(subnet: string, address: string): boolean {
  const [range, one] = [addressRange(subnet), addressRange(address)];
  if (range === undefined || one === undefined) return false;
  return Buffer.compare(range.low, one.low) < 0 && Buffer.compare(one.low, range.high) < 0;
}

function numberOf(bytes: Iterable<number>): number {
  let value = 0;
  for (const byte of bytes) value = value * 256 + byte;
  return value;
}

const textOf = (value: number): string =>
  [value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255].join(".");
