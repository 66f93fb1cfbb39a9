/** A value of a data record: text, a number (as a double, or as a 32-bit integer if whole), a list or a map. */
export type MmdbValue = string | number | readonly MmdbValue[] | { readonly [key: string]: MmdbValue };

const RECORD_BYTES = 3;
const SEPARATOR = Buffer.alloc(16);
const MARKER = Buffer.concat([Buffer.from("abcdef", "hex"), Buffer.from("MaxMind.com")]);

/** Builds a database in MaxMind DB format 2.0 of IPv4 addresses, with a record for each `a.b.c.d/n`. */
export function mmdb(networks: Readonly<Record<string, MmdbValue>>, databaseType = "Test-City"): Buffer {
  const data: Buffer[] = [];
  // Each node has two records: the number of a node, "none", or the offset of a data record.
  type Slot = { readonly node: number } | { readonly data: number } | undefined;
  const nodes: [Slot, Slot][] = [[undefined, undefined]];
  for (const [network, value] of Object.entries(networks)) {
    const [address = "", length = "32"] = network.split("/");
    const bits = address
      .split(".")
      .map((part) => Number(part).toString(2).padStart(8, "0"))
      .join("")
      .slice(0, Number(length));
    let at = 0;
    for (const [depth, bit] of Array.from(bits).entries()) {
      const side = bit === "1" ? 1 : 0;
      const slots = nodes[at] ?? [undefined, undefined];
      if (depth === bits.length - 1) {
        slots[side] = { data: Buffer.concat(data).length };
        break;
      }
      const next = slots[side];
      if (next !== undefined && "node" in next) {
        at = next.node;
        continue;
      }
      slots[side] = { node: nodes.length };
      at = nodes.push([undefined, undefined]) - 1;
    }
    data.push(encoded(value));
  }
  const record = (slot: Slot): Buffer => {
    const bytes = Buffer.alloc(RECORD_BYTES);
    const none = nodes.length;
    bytes.writeUIntBE(slot === undefined ? none : "node" in slot ? slot.node : none + 16 + slot.data, 0, RECORD_BYTES);
    return bytes;
  };
  const tree = Buffer.concat(nodes.flat().map(record));
  const metadata = encoded({
    binary_format_major_version: 2,
    binary_format_minor_version: 0,
    build_epoch: 1_800_000_000,
    database_type: databaseType,
    ip_version: 4,
    node_count: nodes.length,
    record_size: RECORD_BYTES * 8,
  });
  return Buffer.concat([tree, SEPARATOR, ...data, MARKER, metadata]);
}

function encoded(value: MmdbValue): Buffer {
  if (typeof value === "string") {
    const text = Buffer.from(value);
    return Buffer.concat([control(2, text.length), text]);
  }
  if (typeof value === "number") {
    const bytes = Buffer.alloc(Number.isInteger(value) ? 4 : 8);
    if (Number.isInteger(value)) bytes.writeUInt32BE(value);
    else bytes.writeDoubleBE(value);
    return Buffer.concat([control(Number.isInteger(value) ? 6 : 3, bytes.length), bytes]);
  }
  if (isList(value)) return Buffer.concat([control(11, value.length), ...value.map(encoded)]);
  const entries = Object.entries(value).flatMap(([key, inner]) => [encoded(key), encoded(inner)]);
  return Buffer.concat([control(7, entries.length / 2), ...entries]);
}

const isList = (value: MmdbValue): value is readonly MmdbValue[] => Array.isArray(value);

/** Returns the control bytes of a field: its type, and its size of less than 285. */
function control(type: number, size: number): Buffer {
  const low = Math.min(size, 29);
  const first = type <= 7 ? [(type << 5) | low] : [low, type - 7];
  return Buffer.from(size < 29 ? first : [...first, size - 29]);
}
