import { addressRange } from "../../../lib/net/cidr.ts";

/** Allocation of the container network's IPv4 addresses. */
export interface AddressPlan {
  readonly subnet: string;
  /** Reserved addresses: the bridge's and the resolver's. */
  readonly reserved: ReadonlySet<string>;
}

/** Addresses below this one are for the machine and the resolver. */
const FIRST = 16;

/**
 * Assigns an address to each definition without a pinned one: its previous address if still in the subnet, else the lowest free one, in the
 * order of ids. A pinned address is never assigned to another definition. Pure.
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

/** Returns the first host address of a subnet. */
export function firstAddress(subnet: string): string | undefined {
  const range = addressRange(subnet);
  return range === undefined ? undefined : textOf(numberOf(range.low.subarray(1)) + 1);
}

/** Returns the address of the node's resolver: 172.18.1.2 in 172.18.0.0/16, and the second host address of a small subnet. */
export function resolverAddress(subnet: string): string | undefined {
  const range = addressRange(subnet);
  if (range === undefined) return undefined;
  const low = numberOf(range.low.subarray(1));
  const high = numberOf(range.high.subarray(1));
  return textOf(low + 258 < high ? low + 258 : low + 2);
}

/** Reports whether an address is a host address of a subnet: neither its first nor its last. */
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
